"""Who may ask: anybody on loopback unless the settings say otherwise, nobody for another site's page, tokens elsewhere."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Home, eventually, lines, opened


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with opened(tmp_path_factory.mktemp("guarded") / "home", TENURE_GATEWAY_TOKENS="1") as home:
        yield home


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Origin": "https://elsewhere.example"}, "foreign_origin"),
        ({"Sec-Fetch-Site": "cross-site"}, "foreign_origin"),
        ({"Host": "rebound.example"}, "foreign_host"),
    ],
)
def test_a_page_of_another_site_is_refused(home: Home, headers: dict[str, str], code: str) -> None:
    refused = home.ask("GET", "/v1/models", headers=headers)
    assert (refused.status, refused.error["code"]) == (403, code)


def test_its_own_pages_and_names_are_not(home: Home) -> None:
    host = home.url.split("/")[2]
    assert home.ask("GET", "/v1/models", headers={"Origin": f"http://{host}"}).status == 200
    assert home.ask("GET", "/v1/models", headers={"Host": "localhost"}).status == 200
    assert home.ask("GET", "/v1/models", headers={"Host": socket.gethostname()}).status == 200


def test_where_tokens_are_needed_they_are_checked_before_any_byte(guarded: Home, tmp_path: Path) -> None:
    token = guarded.tenure("token", "create", "ci").strip()
    guarded.bearer = {"Authorization": f"Bearer {token}"}
    guarded.declare("small", "--seen", str(tmp_path / "seen"))
    guarded.reload()
    missing = guarded.chat("small", stream=True)
    assert (missing.status, missing.error["type"], missing.error["code"]) == (
        401,
        "authentication_error",
        "missing_token",
    )
    wrong = guarded.chat("small", headers={"Authorization": "Bearer sk-wrong"})
    assert (wrong.status, wrong.error["code"]) == (401, "invalid_api_key")
    assert guarded.chat("small", headers={"Authorization": f"Bearer {token}"}).status == 200
    assert guarded.ask("GET", "/v1/models", headers={"Authorization": f"Bearer {token}"}).status == 200
    journal = guarded.path / "gateway" / "requests.jsonl"
    assert eventually(lambda: lines(journal))[-1]["who"] == "ci"
    for kept in (*(guarded.path / "daemon").glob("*.log"), journal):
        assert token not in kept.read_text()
    assert "authorization" not in lines(tmp_path / "seen")[-1]["headers"]


def test_a_gateway_off_loopback_needs_a_token_that_cannot_be_guessed(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", {"TENURE_GATEWAY_HOST": "0.0.0.0"})
    with pytest.raises(AssertionError, match=r"there is no token;(.|\n)*makes others"):
        home.up()


def test_on_loopback_nobody_needs_one_and_whoever_has_one_is_held_to_it(home: Home) -> None:
    home.declare("small")
    home.reload()
    token = home.tenure("token", "create", "agent", "--requests-per-minute", "2").strip()
    assert home.chat("small").status == 200
    assert home.chat("small", headers={"Authorization": "Bearer sk-no-key-required"}).status == 200
    named = {"Authorization": f"Bearer {token}"}
    assert [home.chat("small", headers=named).status for _ in range(3)] == [200, 200, 429]
    journal = home.path / "gateway" / "requests.jsonl"
    eventually(lambda: [line["who"] for line in lines(journal)][-5:] == [None, None, "agent", "agent", "agent"])
    home.tenure("token", "revoke", "agent")
