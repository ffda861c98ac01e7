"""`tenure models`: which are up, waiting or asleep; wake one, put one to sleep, and ask how long one should stay up."""

from __future__ import annotations

import sys
import time
from typing import Any, NoReturn
from urllib.parse import quote

from .call import Call
from .client import Refused
from .grammar import Option, Usage, Verb, nearest
from .render import age, emit, moment, note, plain, room, span, table

VERB = Verb(
    usage="models [wake NAME | sleep NAME | advise NAME]",
    options=(
        Option(names=("--wait", "-w"), help="of wake: return when it is ready; 1 with the reason if it fails"),
        Option(names=("--days",), value="N", help="of advise: how many days back (default 7)"),
        Option(
            names=("--second-of-waiting-is-worth",),
            value="N",
            help="of advise: share-seconds that a second of a caller's waiting is worth (default 60)",
        ),
        Option(names=("--windows",), value="LIST", help="of advise: idle windows to try, such as 5m,30m,2h"),
        Option(names=("--plot",), value="FILE.svg", help="of advise: draw the two curves there"),
    ),
    positionals=(0, 2),
    details="""
    Models are declared beside the policy (`tenure policy schema model`) and wake when somebody asks at the gateway.
    A model that runs is a job: `tenure why JOB` says why it waits, `tenure logs JOB` what its server printed.
    `advise` judges idle windows from a minute to a day by the requests that really came, and changes nothing.
    """,
    examples=(
        ("tenure models wake assistant --wait", "load it before anybody waits for it"),
        ("tenure model advise assistant --plot idle.svg", "how long it should stay up, by last week's requests"),
    ),
)

WORDS = ("wake", "sleep", "advise")
ADVISES = ("days", "second-of-waiting-is-worth", "windows", "plot")
POLL_S = 20.0
DOUBT_S = 2.0  # one that was leaving is asleep for a moment before it is started again


def run(call: Call) -> int:
    word, *rest = call.parsed.positionals or [""]
    if word and word not in WORDS:
        raise Usage(f"{word!r}: there is wake NAME, sleep NAME and advise NAME{nearest(word, WORDS)}")
    if word and not rest:
        raise Usage(f"`models {word}` needs a name{_names(call)}")
    if call.parsed.on("wait") and word != "wake":
        raise Usage("--wait goes with `models wake NAME`")
    stray = next((key for key in ADVISES if call.parsed.text(key) is not None), None)
    if stray and word != "advise":
        raise Usage(f"--{stray} goes with `models advise NAME`")
    try:
        if word == "advise":
            from .model_advice import advise

            return advise(call, rest[0])
        return _hand(call, word, rest[0]) if word else _ls(call)
    except Refused as error:
        _unknown(call, error, rest[0] if rest else "")


def _names(call: Call) -> str:
    names = [str(model["name"]) for model in call.client.get("/models")]
    return f"; there is {', '.join(names)}" if names else ""


def _unknown(call: Call, error: Refused, name: str) -> NoReturn:
    """A name that nothing bears is answered with the one that was meant."""
    if error.code != "NoSuchModel":
        raise error
    known = [
        word for model in call.client.get("/models") for word in (model["name"], *model["aliases"], *model["adapters"])
    ]
    there = f"there is {', '.join(known)}" if known else "none is declared (`tenure policy schema model` says how)"
    raise Usage(f"there is no model {name!r}; {there}{nearest(name, known)}") from None


def _hand(call: Call, word: str, name: str) -> int:
    model = call.client.post(f"/models/{quote(name, safe='')}:{word}")
    if call.parsed.on("wait"):
        model = _until_ready(call, model)
    if call.structured:
        emit(model, call.form)
    elif call.form == "name":
        print(model["name"])
    elif not call.parsed.on("wait") or model["state"] == "ready":
        print(f"{model['name']}: {_standing(model)}")
    bad = model["state"] == "failed" or (call.parsed.on("wait") and model["state"] != "ready")
    if bad:
        print(f"tenure models: {plain(model['name'])} is not ready: {_standing(model)}", file=sys.stderr)
    return 1 if bad else 0


def _until_ready(call: Call, model: dict[str, Any]) -> dict[str, Any]:
    """The model once it is ready, has failed, or was put to sleep; what it waits for is said on the way."""
    told, version, asleep_since = "", 0, 0.0
    while model["state"] not in ("ready", "failed"):
        now = time.monotonic()
        asleep_since = (asleep_since or now) if model["state"] == "asleep" else 0.0
        if asleep_since and now - asleep_since > DOUBT_S:
            return model
        standing = _standing(model)
        if standing != told and model["state"] != "asleep":
            note(f"{model['name']}: {standing}")
            told = standing
        patience = DOUBT_S if asleep_since else POLL_S
        answer = call.client.call(
            "GET", "/models:watch", query={"after": version, "timeout": patience}, timeout_s=patience + 30
        )
        version = int(answer["version"])
        found = next((row for row in answer["models"] if row["name"] == model["name"]), None)
        if found is None:
            return {**model, "state": "asleep", "reason": "Undeclared", "message": "it is no longer declared"}
        model = found
    return model


# -- the list


def _ls(call: Call) -> int:
    models = call.client.get("/models")
    if call.structured:
        emit(models, call.form)
    elif call.form == "name":
        for model in models:
            print(model["name"])
    elif models:
        print("\n".join(_lines(models, wide=call.form == "wide")))
    else:
        note("no model is declared; `tenure policy schema model` says how one is, in TENURE_HOME/policy")
    return 0


def _lines(models: list[dict[str, Any]], *, wide: bool) -> list[str]:
    """A row each, and the sentence of why below it, within the terminal's width."""
    head = ["NAME", "STATE", "JOB", "BUSY", "HELD", "WAKES", "ASKED", "SLEEPS"]
    more = ["RUN", "ALSO CALLED", "WHY"]
    rows = [_row(model) + (_more(model) if wide else []) for model in models]
    drawn = table([*head, *more] if wide else head, rows)
    if wide:
        return drawn
    shown = drawn[:1]
    for model, line in zip(models, drawn[1:], strict=True):
        shown.append(line)
        why = _why(model)
        if why:
            shown += _wrapped(why)
    return shown


def _wrapped(text: str) -> list[str]:
    width = room()
    if not width:
        return [f"  {text}"]
    import textwrap

    return textwrap.wrap(text, max(30, width), initial_indent="  ", subsequent_indent="  ")


def _row(model: dict[str, Any]) -> list[object]:
    asked = model["last_inference_at"]
    return [
        model["name"], model["state"], model["job_id"], model["in_flight"], model["held"], model["wakes"],
        age(asked) if asked else "-", "never" if model["resident"] else _in(model["sleeps_at"]),
    ]  # fmt: skip


def _more(model: dict[str, Any]) -> list[object]:
    return [model["run_id"], ",".join([*model["aliases"], *model["adapters"]]), _why(model)]


def _in(at: str | None) -> str:
    from datetime import UTC, datetime

    when = moment(at)
    return f"in {span((when - datetime.now(UTC)).total_seconds())}" if when else "-"


def _why(model: dict[str, Any]) -> str:
    said = ": ".join(plain(part) for part in (model["reason"], model["message"]) if part)
    if model["blocked_by"]:
        said += f" (held by {', '.join(model['blocked_by'])})"
    window = model.get("window")
    if window:
        said += "" if window["message"] in said else f"{'; ' if said else ''}{plain(window['message'])}"
    elif model["retry_after_s"] > 0:
        said += f"; a request may try again in {span(model['retry_after_s'] + 0.999)}"
    return said


def _standing(model: dict[str, Any]) -> str:
    job = f" (job {model['job_id']})" if model["job_id"] else ""
    why = _why(model)
    return f"{model['state']}{job}" + (f": {why}" if why else "")
