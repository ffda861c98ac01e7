"""The same key gives the same answer, and never the answer to another request; contents are kept by digest."""

from __future__ import annotations

import pytest

from tenure.domain.errors import Conflict, NotFound
from tenure.domain.ids import Instant
from tenure.ledger import Ledger, environment_digest

T = Instant(1_790_000_000_000_000)


def test_the_same_key_gives_the_same_answer(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        assert tx.idempotent("ada", "k", "hash") is None
        tx.remember("ada", "k", "hash", '{"id":"1"}', T)
    with ledger.transaction() as tx:
        assert tx.idempotent("ada", "k", "hash") == '{"id":"1"}'
        assert tx.idempotent("bob", "k", "hash") is None


def test_the_same_key_with_another_request_is_a_conflict(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.remember("ada", "k", "hash", "1", T)
    with pytest.raises(Conflict, match="another request"), ledger.transaction() as tx:
        tx.idempotent("ada", "k", "other")


def test_an_answer_is_kept_only_with_its_work(ledger: Ledger) -> None:
    def fail() -> None:
        with ledger.transaction() as tx:
            tx.remember("ada", "k", "hash", "1", T)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    with ledger.transaction() as tx:
        assert tx.idempotent("ada", "k", "hash") is None


def test_an_answer_counts_from_the_moment_it_is_given(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.remember("ada", "k", "hash", "1", T)
        assert tx.idempotent("ada", "k", "hash") == "1"
        tx.remember("ada", "l", "hash", "2", T)
    with ledger.transaction() as tx:
        assert (tx.idempotent("ada", "k", "hash"), tx.idempotent("ada", "l", "hash")) == ("1", "2")


def test_old_answers_are_forgotten(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.remember("ada", "old", "h", "1", Instant(T - 1))
        tx.remember("ada", "new", "h", "2", T)
        assert tx.forget_answers(before=T) == 1
    with ledger.transaction() as tx:
        assert (tx.idempotent("ada", "old", "h"), tx.idempotent("ada", "new", "h")) == (None, "2")


def test_an_environment_is_kept_once_and_whole(ledger: Ledger) -> None:
    environment = {"B": "ü\n\0", "A": "x" * 1_000_000, "BAD": "\udcff"}
    with ledger.transaction() as tx:
        digest = tx.put_environment(environment, T)
        assert tx.put_environment(dict(sorted(environment.items())), T) == digest
    assert digest == environment_digest(environment) != environment_digest({"A": "x"})
    assert ledger.environment(digest) == environment
    with pytest.raises(NotFound):
        ledger.environment("nothing")


def test_an_environment_is_not_known_before_it_is_committed(ledger: Ledger) -> None:
    environment = {"A": "b"}

    def fail() -> None:
        with ledger.transaction() as tx:
            tx.put_environment(environment, T)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    for _ in range(2):
        with ledger.transaction() as tx:
            digest = tx.put_environment(environment, T)
        assert ledger.environment(digest) == environment
