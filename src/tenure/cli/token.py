"""`tenure token`: the way in over TCP: the operator's token, named ones for others with rights and limits, a browser's
one-time address."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from .call import Call
from .grammar import Option, Usage, Verb, nearest
from .render import emit, moment, note, span, table

VERB = Verb(
    usage="token [show | login | ls | create NAME [flags] | set NAME [flags] | revoke NAME]",
    options=(
        Option(
            names=("--role",), value="user|operator", choices=("user", "operator"), help="of create: whose jobs it may change"
        ),
        Option(names=("--only",), value="jobs|models|both", choices=("jobs", "models", "both"), help="jobs: the platform's API and pages; models: the gateway"),
        Option(names=("--models",), value="NAME,…|all", help="the models, aliases and adapters that it may ask (default all)"),
        Option(names=("--requests-per-minute", "--rpm"), value="N|none", help="how many requests may begin within any minute"),
        Option(names=("--tokens-per-minute", "--tpm"), value="N|none", help="how many model tokens, of prompts and answers, within any minute"),
        Option(names=("--tokens-per-day",), value="N|none", help="its budget of model tokens for a day in UTC"),
        Option(names=("--expires",), value="TIME|never", help="30d, 12h, or an RFC 3339 time"),
    ),
    positionals=(0, 2),
    details="""
    Alone it prints the operator's token, for `Authorization: Bearer …` and TENURE_TOKEN.  A created token is shown once;
    `set` changes what is named and leaves the rest.  Changes and `revoke` take effect within a second.  `login` prints
    an address that logs one browser in.
    """,
    examples=(
        ("xdg-open $(tenure token login)", "open the portal"),
        ("tenure token create agent --only models --models assistant --requests-per-minute 60", "a key for one model"),
        ("tenure token set agent --tokens-per-day 200000 --requests-per-minute none", "another limit, the same key"),
    ),
)  # fmt: skip

WORDS = ("show", "login", "ls", "create", "set", "revoke")
NAMED = ("create", "set", "revoke")
LIMITS = ("requests-per-minute", "tokens-per-minute", "tokens-per-day")
FLAGS = ("role", "only", "models", *LIMITS, "expires")


def run(call: Call) -> int:
    word, *rest = call.parsed.positionals or ["show"]
    word = "ls" if word == "list" else word
    if word not in WORDS:
        raise Usage(f"{word!r}: there is {', '.join(WORDS)}{nearest(word, WORDS)}")
    if (word in NAMED) != bool(rest):
        raise Usage(f"`token {word}` {'takes nothing more' if rest else 'needs a name'}")
    given = [flag for flag in FLAGS if call.parsed.text(flag) is not None]
    if given and (word not in ("create", "set") or (word == "set" and "role" in given)):
        raise Usage(f"--{given[0]} is not for `token {word}`; revoke the token and create it with another role" if word == "set" else f"--{given[0]} is not for `token {word}`, but for create and set")  # fmt: skip
    if word == "show":
        return _show(call)
    if word == "login":
        return _say(call, call.client.post("/daemon:login"), "url")
    if word == "create":
        made = call.client.post("/tokens", {"name": rest[0], "role": call.parsed.text("role") or "user", **_said(call)})
        return _say(call, made, "token")
    if word == "set":
        return _set(call, rest[0])
    if word == "revoke":
        call.client.call("DELETE", f"/tokens/{quote(rest[0], safe='')}")
        return 0
    return _ls(call)


def _said(call: Call) -> dict[str, Any]:
    """The flags as REST takes them: null is no limit."""
    parsed = call.parsed
    said: dict[str, Any] = {}
    only, models, expires = parsed.text("only"), parsed.text("models"), parsed.text("expires")
    if only is not None:
        said["scopes"] = ["jobs", "models"] if only == "both" else [only]
    if models is not None:
        names = [name.strip() for name in models.split(",") if name.strip()]
        if not names:
            raise Usage("--models needs names, or `all`; `tenure models` lists them")
        said["models"] = None if names == ["all"] else names
    for flag in LIMITS:
        if parsed.text(flag) is not None:
            said[flag.replace("-", "_")] = None if parsed.text(flag) == "none" else _limit(call, flag)
    if expires is not None:
        said["expires"] = None if expires in ("never", "none") else expires
    return said


def _limit(call: Call, flag: str) -> int:
    if call.parsed.text(flag) == "0":
        raise Usage(f"--{flag} takes at least 1, or `none`; `--only jobs` closes the models to a token")
    number = call.parsed.count(flag)
    assert number is not None
    return number


def _set(call: Call, name: str) -> int:
    said = _said(call)
    if not said:
        raise Usage(f"`token set {name}` needs what to change, such as --requests-per-minute 60; `tenure token ls` shows what it has")  # fmt: skip
    row = call.client.call("PATCH", f"/tokens/{quote(name, safe='')}", body=said)
    if call.structured:
        emit(row, call.form)
    else:
        print(row["name"])
    return _notes(row)


def _ls(call: Call) -> int:
    tokens = call.client.get("/tokens")
    if call.structured:
        emit(tokens, call.form)
    elif call.form == "name":
        print("\n".join(token["name"] for token in tokens))
    else:
        head = ["NAME", "ROLE", "FOR", "MODELS", "LIMITS", "TODAY", "EXPIRES"]
        print("\n".join(table(head, [_row(token) for token in tokens])))
    return 0


def _row(token: dict[str, Any]) -> list[object]:
    from datetime import UTC, datetime

    use = token["use"]
    limits = [
        f"{token[key]:,} {words}"
        for key, words in (
            ("requests_per_minute", "requests/min"),
            ("tokens_per_minute", "tokens/min"),
            ("tokens_per_day", "tokens/day"),
        )
        if token[key] is not None
    ]
    today = f"{use['requests_today']:,} requests, {use['tokens_today']:,} tokens" if use["requests_today"] else None
    end = moment(token["expires_at"])
    left = end and span((end - datetime.now(UTC)).total_seconds())
    models = ",".join(token["models"] or ["all"]) if "models" in token["scopes"] else None
    return [
        token["name"],
        token["role"],
        ",".join(token["scopes"]),
        models,
        ", ".join(limits),
        today,
        "expired" if token["expired"] else left and f"in {left}",
    ]


def _show(call: Call) -> int:
    """From the file, which only its owner can read: the platform never says it again."""
    path = call.settings.tokens_dir / "operator"
    try:
        token = path.read_text("ascii").strip()
    except FileNotFoundError:
        raise Usage(f"there is no operator's token in {path}; `tenure up -d` makes one") from None
    except OSError as error:
        raise Usage(f"{path}: {(error.strerror or str(error)).lower()}") from None
    return _say(call, {"name": "operator", "role": "operator", "token": token}, "token")


def _say(call: Call, answer: dict[str, Any], key: str) -> int:
    if call.structured:
        emit(answer, call.form)
    else:
        print(answer[key])
    return _notes(answer)


def _notes(answer: dict[str, Any]) -> int:
    for text in answer.get("notes", ()):
        note(text)
    return 0
