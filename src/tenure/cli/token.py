"""`tenure token`: the way in over TCP: the operator's token, named ones for others, a browser's one-time address."""

from __future__ import annotations

from urllib.parse import quote

from .call import Call
from .grammar import Option, Usage, Verb, nearest
from .render import emit, table

VERB = Verb(
    usage="token [show | login | ls | create NAME [--role ROLE] | revoke NAME]",
    options=(
        Option(
            names=("--role",), value="user|operator", choices=("user", "operator"), help="what the new token may do"
        ),
    ),
    positionals=(0, 2),
    details="""
    Alone it prints the operator's token, for `Authorization: Bearer …` and TENURE_TOKEN.  A created token is shown once.
    `login` prints an address that logs one browser in.
    """,
    examples=(("xdg-open $(tenure token login)", "open the portal"),),
)

WORDS = ("show", "login", "ls", "create", "revoke")


def run(call: Call) -> int:
    word, *rest = call.parsed.positionals or ["show"]
    if word not in WORDS:
        raise Usage(f"{word!r}: there is {', '.join(WORDS)}{nearest(word, WORDS)}")
    if (word in ("create", "revoke")) != bool(rest):
        raise Usage(f"`token {word}` {'takes nothing more' if rest else 'needs a name'}")
    if word == "show":
        return _show(call)
    if word == "login":
        return _say(call, call.client.post("/daemon:login"), "url")
    if word == "create":
        return _say(
            call, call.client.post("/tokens", {"name": rest[0], "role": call.parsed.text("role") or "user"}), "token"
        )
    if word == "revoke":
        call.client.call("DELETE", f"/tokens/{quote(rest[0], safe='')}")
        return 0
    tokens = call.client.get("/tokens")
    if call.structured:
        emit(tokens, call.form)
    elif call.form == "name":
        print("\n".join(token["name"] for token in tokens))
    else:
        print("\n".join(table(["NAME", "ROLE"], [[token["name"], token["role"]] for token in tokens])))
    return 0


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


def _say(call: Call, answer: dict[str, str], key: str) -> int:
    if call.structured:
        emit(answer, call.form)
    else:
        print(answer[key])
    return 0
