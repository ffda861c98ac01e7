"""Tokens: files that only their owner reads, compared by digest, refused where they could be guessed."""

from __future__ import annotations

import dataclasses
import getpass
import hashlib
import json
import os
import secrets
import stat
import threading
import time
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tenure.control.verbs import TokenChange
from tenure.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound, Unavailable
from tenure.domain.ids import Instant
from tenure.ledger import fold
from tenure.portal.api.wire.tokens import CreatedToken, TokenRow
from tenure.portal.grants import Grant
from tenure.portal.tokens import TokenStore, check_exposure, is_loopback, weakness

from .conftest import Door

if TYPE_CHECKING:
    from collections.abc import Callable

    Opener = Callable[..., AbstractContextManager[Door]]


def test_the_operators_token_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    store = TokenStore(tmp_path / "tokens")
    before = os.umask(0)
    try:
        token = store.ensure_operator()
    finally:
        os.umask(before)
    assert store.ensure_operator() == token
    assert stat.S_IMODE((tmp_path / "tokens").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "tokens" / "operator").stat().st_mode) == 0o600
    found = store.find(token)
    assert found is not None
    assert (found.name, found.role) == ("operator", "operator")
    assert weakness(token) is None


def test_a_created_token_is_kept_as_a_digest_and_ends_when_revoked(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    token = store.create("ci")
    assert token not in (tmp_path / "ci").read_text()
    assert stat.S_IMODE((tmp_path / "ci").stat().st_mode) == 0o600
    assert [(row["name"], row["role"]) for row in store.ls()] == [("ci", "user")]
    assert store.find(token) is not None
    with pytest.raises(Conflict):
        store.create("ci")
    store.revoke("ci")
    assert store.find(token) is None
    with pytest.raises(NotFound):
        store.revoke("ci")


@pytest.mark.parametrize("name", ["", "../operator", "A", "a/b", ".hidden", "x" * 64, "ü"])
def test_a_name_that_could_be_a_path_is_no_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest):
        TokenStore(tmp_path).create(name)
    with pytest.raises(NotFound):
        TokenStore(tmp_path).revoke(name)


@pytest.mark.parametrize("text", ["", "{", '{"role": "king", "sha256": "00"}', '{"role": "user"}', "[1]", "\x00\xff"])
def test_a_damaged_file_opens_nothing(tmp_path: Path, text: str) -> None:
    store = TokenStore(tmp_path)
    (tmp_path / "ci").write_text(text, encoding="latin-1")
    assert store.find("") is None
    assert store.ls() == []


def test_what_is_weak() -> None:
    assert weakness("short") is not None
    assert weakness("a" * 40) is not None
    assert weakness("password" * 5) is not None
    assert weakness("0123456789abcdef" * 2) is not None
    assert all(weakness(secrets.token_urlsafe(32)) is None for _ in range(200))
    assert all(weakness(secrets.token_hex(24)) is None for _ in range(200))


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("192.0.2.7", False), ("127.0.0.1.example.org", False)],
)  # fmt: skip
def test_what_is_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_off_loopback_a_missing_weak_or_readable_token_is_refused(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    check_exposure("127.0.0.1", store)
    with pytest.raises(Forbidden, match="there is no token") as missing:
        check_exposure("0.0.0.0", store)
    assert missing.value.code == "MissingToken"

    path = tmp_path / "operator"
    path.write_text("hunter2hunter2hunter2hunter2hunter2\n")
    path.chmod(0o600)
    with pytest.raises(Forbidden, match="weak") as weak:
        check_exposure("0.0.0.0", store)
    assert "hunter2" not in weak.value.message

    path.write_text(secrets.token_urlsafe(32))
    check_exposure("0.0.0.0", store)
    path.chmod(0o644)
    with pytest.raises(Forbidden, match="read by other users"):
        check_exposure("0.0.0.0", store)


NOW = Instant(1_800_000_000_000_000)


def test_a_token_has_rights_limits_and_an_end_and_they_can_change(tmp_path: Path) -> None:
    clock = [NOW]
    store = TokenStore(tmp_path, lambda: clock[0])
    grant = Grant(scopes=("models",), models=("assistant",), requests_per_minute=60, expires_at=Instant(NOW + 10))
    secret = store.create("agent", grant)
    found = store.find(secret)
    assert found is not None
    assert found.grant == dataclasses.replace(grant, created_at=NOW)
    changed = store.change("agent", {"models": None, "tokens_per_day": 1000})
    assert (changed.grant.models, changed.grant.tokens_per_day, changed.grant.requests_per_minute) == (None, 1000, 60)
    assert store.find(secret) == changed == TokenStore(tmp_path, lambda: NOW).find(secret)
    assert stat.S_IMODE((tmp_path / "agent").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["agent"], "nothing is left beside it"

    clock[0] = Instant(NOW + 10)
    assert store.find(secret) is None
    assert store.named("agent") is None
    assert store.of_digest(found.digest) is not None, "the gateway may tell its owner that it is over"
    assert [row["expired"] for row in store.ls()] == [True]
    store.change("agent", {"expires_at": None})
    assert store.find(secret) is not None


def test_files_of_older_versions_mean_what_they_meant(tmp_path: Path) -> None:
    secret = "x" * 43
    digest = hashlib.sha256(secret.encode()).hexdigest()
    (tmp_path / "old").write_text(json.dumps({"role": "user", "sha256": digest}) + "\n")
    found = TokenStore(tmp_path).find(secret)
    assert found is not None
    assert found.grant == Grant(role="user")


@pytest.mark.parametrize(
    "limits",
    [{"requests_per_minute": 0}, {"requests_per_minute": "9"}, {"tokens_per_day": True}, {"models": []}, {"models": "abc"},
     {"models": [1]}, {"scopes": []}, {"scopes": ["all"]}, {"expires_at": "soon"}, {"expires_at": 5}],
)  # fmt: skip
def test_a_file_whose_limits_are_not_understood_opens_nothing(tmp_path: Path, limits: dict[str, object]) -> None:
    secret = "x" * 43
    body = {"role": "user", "sha256": hashlib.sha256(secret.encode()).hexdigest(), **limits}
    (tmp_path / "odd").write_text(json.dumps(body))
    assert TokenStore(tmp_path).find(secret) is None


def test_the_operators_token_cannot_be_limited(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    store.ensure_operator()
    with pytest.raises(InvalidRequest, match="has no limits"):
        store.change("operator", {"requests_per_minute": 1})
    with pytest.raises(InvalidRequest, match="cannot be for models only"):
        Grant(role="operator", scopes=("models",))
    with pytest.raises(NotFound):
        store.change("nobody", {})


def test_readers_never_see_a_token_between_two_of_its_forms(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    secrets_ = [store.create(f"t{n}") for n in range(4)]
    stop = threading.Event()
    missed: list[int] = []

    def look() -> None:
        while not stop.is_set():
            missed.extend(n for n, secret in enumerate(secrets_[:3]) if store.find(secret) is None)

    readers = [threading.Thread(target=look) for _ in range(3)]
    for reader in readers:
        reader.start()
    for n in range(60):
        store.change("t0", {"requests_per_minute": n + 1})
        store.revoke("t3") if n == 30 else None
    stop.set()
    for reader in readers:
        reader.join()
    assert missed == []
    assert store.find(secrets_[3]) is None


def test_what_cannot_be_told_is_not_done(tmp_path: Path) -> None:
    """Each change is told of when nothing else can refuse it, and before it has any effect."""
    store = TokenStore(tmp_path)
    secret = store.create("ci", Grant(tokens_per_day=5))
    seen: list[TokenChange] = []

    def full(change: TokenChange) -> None:
        seen.append(change)
        raise Unavailable("the disk is full")

    for attempt in (
        lambda: store.create("new", Grant(), full),
        lambda: store.ensure_operator(full),
        lambda: store.change("ci", {"tokens_per_day": 6}, full),
        lambda: store.revoke("ci", full),
    ):
        with pytest.raises(Unavailable):
            attempt()
    assert [(change.kind, change.name) for change in seen] == [
        ("TokenCreated", "new"), ("TokenCreated", "operator"), ("TokenChanged", "ci"), ("TokenRevoked", "ci"),
    ]  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["ci"]
    found = store.find(secret)
    assert found is not None
    assert found.grant.tokens_per_day == 5

    del seen[:]
    for refused in (
        lambda: store.create("ci", Grant(), full),
        lambda: store.create("no/name", Grant(), full),
        lambda: store.change("ci", {"tokens_per_day": 0}, full),
        lambda: store.change("nobody", {}, full),
        lambda: store.revoke("nobody", full),
    ):
        with pytest.raises((Conflict, InvalidRequest)):
            refused()
    assert store.change("ci", {"tokens_per_day": 5}, full).grant.tokens_per_day == 5, "as it was"
    assert seen == []


# -- over REST


def test_the_diary_says_who_made_changed_and_ended_which_token_and_holds_none(
    open_door: Opener, tmp_path: Path
) -> None:
    with open_door(tmp_path / "home") as door:
        door.wait(door.submit("true"))
        made = door.ask("POST", "/api/v1/tokens", {"name": "boss", "role": "operator"})
        boss = {"Authorization": f"Bearer {made.json['token']}"}
        agent = {"name": "agent", "scopes": ["models"], "models": ["a"], "tokens_per_day": 9000}
        secret = door.ask("POST", "/api/v1/tokens", agent, headers=boss, over="tcp").json["token"]
        assert door.ask("POST", "/api/v1/tokens", agent).status == 409
        changes = {"models": None, "requests_per_minute": 60, "tokens_per_day": 9000}
        assert door.ask("PATCH", "/api/v1/tokens/agent", changes, headers=boss, over="tcp").status == 200
        assert door.ask("PATCH", "/api/v1/tokens/agent", changes).status == 200  # and nothing is new
        assert door.ask("PATCH", "/api/v1/tokens/agent", {"models": []}).status == 422
        assert door.ask("DELETE", "/api/v1/tokens/agent").status == 204
        assert door.ask("DELETE", "/api/v1/tokens/agent").status == 404
        again = door.ask("POST", "/api/v1/tokens", agent).json["token"]
        user = door.ask("POST", "/api/v1/tokens", {"name": "kim"}).json["token"]
        kim = {"Authorization": f"Bearer {user}"}
        assert door.ask("DELETE", "/api/v1/tokens/agent", headers=kim, over="tcp").status == 403

        diary = door.ask("GET", "/api/v1/events?limit=5000").json
        told = [event for event in diary if event["kind"].startswith("Token")]
        me = getpass.getuser()
        assert [(e["kind"], e["data"]["name"], e["data"]["by"], e["data"]["via"]) for e in told] == [
            ("TokenCreated", "operator", "tenure", "internal"),
            ("TokenCreated", "boss", me, "socket"),
            ("TokenCreated", "agent", "boss", "token"),
            ("TokenChanged", "agent", "boss", "token"),
            ("TokenRevoked", "agent", me, "socket"),
            ("TokenCreated", "agent", me, "socket"),
            ("TokenCreated", "kim", me, "socket"),
        ]
        assert (
            told[2]["message"]
            == "token agent is created by boss: user, for models, may ask a, 9,000 model tokens a day"
        )
        assert told[3]["message"] == "token agent is changed by boss: may ask all models, 60 requests a minute"
        assert told[3]["data"]["was"] == {"models": ["a"], "requests_per_minute": None}
        assert told[3]["data"]["rights"]["requests_per_minute"] == 60
        prints = [hashlib.sha256(one.encode()).hexdigest()[:8] for one in (secret, again)]
        assert [told[n]["data"]["fingerprint"] for n in (2, 3, 4, 5)] == [prints[0]] * 3 + [prints[1]]
        page = door.ask("GET", "/").body.decode()
        assert told[3]["message"] in page

        ledger = door.platform.ledger
        folded = fold(ledger.events(limit=5000))
        assert {row.id: row for row in ledger.jobs().items} == folded.jobs
        assert {row.run_id: row for row in ledger.attempts("1")} == folded.attempts
        keys = [secret, again, user, made.json["token"], door.token]
        digests = [hashlib.sha256(key.encode()).hexdigest() for key in keys]
        for path in (tmp_path / "home").rglob("*"):
            if path.is_file() and path.parent.name != "tokens":
                kept = path.read_bytes()
                assert not [key for key in keys + digests if key.encode() in kept], path


def test_rest_creates_changes_lists_and_revokes(door: Door) -> None:
    asked = {
        "name": "agent",
        "scopes": ["models"],
        "models": ["nobody-yet"],
        "requests_per_minute": 60,
        "expires": "30d",
    }
    made = door.ask("POST", "/api/v1/tokens", asked)
    assert (made.status, made.headers["cache-control"], made.headers["location"]) == (
        201,
        "no-store",
        "/api/v1/tokens/agent",
    )
    created = CreatedToken.model_validate(made.json)
    assert created.notes == ["no model is named 'nobody-yet' now; it may be declared later"]
    assert created.expires_at is not None
    assert abs((created.expires_at - datetime.now(UTC)).total_seconds() - 30 * 86400) < 60
    digest = hashlib.sha256(created.token.encode()).hexdigest()
    assert door.ask("POST", "/api/v1/tokens:check", {"sha256": digest}).json["models"] == ["nobody-yet"]

    changed = door.ask("PATCH", "/api/v1/tokens/agent", {"models": None, "tokens_per_day": 1000})
    row = TokenRow.model_validate(changed.json)
    assert (row.models, row.tokens_per_day, row.requests_per_minute, row.expires_at) == (
        None,
        1000,
        60,
        created.expires_at,
    )
    listed = door.ask("GET", "/api/v1/tokens")
    assert created.token not in listed.body.decode()
    rows = {row.name: row for row in map(TokenRow.model_validate, listed.json)}
    assert rows["agent"].use.requests_today == 0
    assert rows["operator"].requests_per_minute is None

    for body, field in (({"requests_per_minute": 0}, "requests_per_minute"), ({"expires": "30"}, "expires"), ({"expires": "2020-01-01T00:00:00Z"}, "expires"), ({"models": []}, "models"), ({"scopes": []}, "scopes"), ({"role": "operator"}, "role")):  # fmt: skip
        refused = door.ask("PATCH", "/api/v1/tokens/agent", body)
        assert (refused.status, refused.json.get("field")) == (422, field), (body, refused.json)
    assert door.ask("PATCH", "/api/v1/tokens/none", {"models": None}).status == 404
    assert door.ask("DELETE", "/api/v1/tokens/agent").status == 204
    assert door.ask("POST", "/api/v1/tokens:check", {"sha256": digest}).status == 404


def test_a_token_for_models_alone_opens_neither_the_api_nor_the_pages(door: Door) -> None:
    token = door.ask("POST", "/api/v1/tokens", {"name": "only", "scopes": ["models"]}).json["token"]
    bearer = {"Authorization": f"Bearer {token}"}
    for method, path in (("GET", "/api/v1/jobs"), ("POST", "/api/v1/jobs"), ("POST", "/api/v1/daemon:stop"), ("GET", "/"), ("GET", "/metrics")):  # fmt: skip
        refused = door.ask(method, path, {} if method == "POST" else None, headers=bearer, over="tcp")
        assert (refused.status, refused.json["code"]) == (403, "ModelsOnly"), path
        assert "tenure token set only --only both" in refused.json["detail"]
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    pasted = door.ask("POST", "/login", f"token={token}".encode(), headers=form, over="tcp")
    assert "set-cookie" not in pasted.headers
    assert door.ask("PATCH", "/api/v1/tokens/only", {"scopes": ["jobs", "models"]}).status == 200
    assert door.ask("GET", "/api/v1/jobs", headers=bearer, over="tcp").status == 200
    door.ask("DELETE", "/api/v1/tokens/only")


def test_what_the_gateway_counted_is_shown_and_nonsense_is_nothing(door: Door) -> None:
    door.ask("POST", "/api/v1/tokens", {"name": "used"})
    kept = door.platform.settings.home / "gateway" / "use.json"
    kept.parent.mkdir(exist_ok=True)
    now = time.time()
    minute = [[int((now - 90) * 10), 7, 7], [int((now - 20) * 10), 2, 30]]
    kept.write_text(
        json.dumps({"v": 1, "tokens": {"used": {"minute": minute, "days": {str(int(now // 86400)): [11, 500]}}}})
    )

    def use() -> dict[str, object]:
        return next(row["use"] for row in door.ask("GET", "/api/v1/tokens").json if row["name"] == "used")  # type: ignore[no-any-return]

    seen = use()
    assert (seen["requests_last_minute"], seen["tokens_last_minute"]) == (2, 30)
    if int(now // 86400) == int(time.time() // 86400):
        assert (seen["requests_today"], seen["tokens_today"]) == (11, 500)
    for nonsense in (
        "",
        "{",
        "[]",
        '{"tokens": 5}',
        '{"tokens": {"used": 5}}',
        '{"tokens": {"used": {"minute": [1]}}}',
    ):
        kept.write_text(nonsense)
        assert use()["requests_today"] == 0, nonsense
    kept.unlink()
    door.ask("DELETE", "/api/v1/tokens/used")
