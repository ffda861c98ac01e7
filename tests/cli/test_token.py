"""`tenure token`: a key, shown once, and what it may do, in the words of those who hand keys out."""

from __future__ import annotations

import re

import pytest

from .conftest import Home


def test_a_key_is_created_changed_listed_and_revoked(home: Home) -> None:
    made = home.tenure("token", "create", "agent", "--only", "models", "--models", "small,other", "--rpm", "60", "--tokens-per-day", "200000", "--expires", "30d")  # fmt: skip
    assert made.code == 0
    assert re.fullmatch(r"[\w-]{43}\n", made.out), "the key and nothing else"
    assert "no model is named 'small' now; it may be declared later" in made.err
    row = next(row for row in home.json("token", "ls") if row["name"] == "agent")
    assert {key: row[key] for key in ("role", "scopes", "models", "requests_per_minute", "tokens_per_minute", "tokens_per_day", "expired")} == {
        "role": "user", "scopes": ["models"], "models": ["small", "other"], "requests_per_minute": 60, "tokens_per_minute": None,
        "tokens_per_day": 200_000, "expired": False,
    }  # fmt: skip
    assert re.search(r"^agent +user +models +small,other +60 requests/min, 200,000 tokens/day +- +in 29d23h$", home.ok("token", "ls"), re.M)  # fmt: skip
    assert made.out.strip() not in home.ok("token", "ls", "-o", "json")

    assert home.ok("token", "set", "agent", "--models", "all", "--rpm", "none", "--tpm", "500", "--expires", "never", "--only", "both") == "agent\n"  # fmt: skip
    row = next(row for row in home.json("token", "ls") if row["name"] == "agent")
    assert (row["scopes"], row["models"], row["requests_per_minute"], row["tokens_per_minute"], row["tokens_per_day"], row["expires_at"]) == (["jobs", "models"], None, None, 500, 200_000, None)  # fmt: skip
    home.ok("token", "revoke", "agent")
    assert "agent" not in home.ok("token", "ls", "-o", "name").split()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("create", "x", "--rpm", "0"), "takes at least 1, or `none`"),
        (("create", "x", "--tokens-per-day", "many"), "takes a whole number, not 'many'"),
        (("create", "x", "--models", ","), "--models needs names"),
        (("create", "x", "--expires", "30"), "write 30d, 12h"),
        (("create", "x", "--expires", "2020-01-01T00:00:00Z"), "is over"),
        (("create", "x", "--role", "operator", "--only", "models"), "cannot be for models only"),
        (("set", "nobody", "--rpm", "5"), "there is no token named 'nobody'"),
        (("set", "operator", "--rpm", "5"), "has no limits"),
        (("set", "operator"), "needs what to change"),
        (("set", "operator", "--role", "user"), "create it with another role"),
        (("ls", "--rpm", "5"), "is not for `token ls`"),
        (("set",), "needs a name"),
        (("sett", "x"), "did you mean set?"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_would_work(home: Home, words: tuple[str, ...], says: str) -> None:
    answer = home.tenure("token", *words)
    assert answer.code != 0
    assert says in answer.err
    assert answer.out == ""
