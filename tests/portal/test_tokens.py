"""Tokens: files that only their owner reads, compared by digest, refused where they could be guessed."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

import pytest

from tenure.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound
from tenure.portal.tokens import TokenStore, check_exposure, is_loopback, weakness


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
    assert store.ls() == [{"name": "ci", "role": "user"}]
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
