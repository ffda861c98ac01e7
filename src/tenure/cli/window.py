"""`tenure window`: claim a whole card for a time, let go of it, see who has it and who is next."""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType
from typing import Any, NoReturn
from urllib.parse import quote

from .call import Call
from .follow import patiently
from .grammar import Option, Usage, Verb, nearest
from .render import emit, moment, note, plain, span, table
from .times import moment_here

VERB = Verb(
    usage="window claim [flags] | release [ID] | ls",
    options=(
        Option(names=("--for",), value="DURATION", help="how long it lasts, once it is yours (default 2h)"),
        Option(names=("--wait", "-w"), help="where the card is not free, stay and wait in line"),
        Option(names=("--begin",), value="TIME", help="announce it: now+1hour, 16:00, or an RFC 3339 time"),
        Option(names=("--card",), value="ID", help="which card (default: the one that is free soonest)"),
        Option(names=("--including-resident",), help="resident work has to leave, too"),
        Option(names=("--stay",), help="stay; the window ends with this command, however that ends"),
        Option(names=("--all", "-a"), help="of ls: ended ones too"),
    ),
    positionals=(0, 2),
    details="""
    On-demand work is asked to leave and cannot come back before the window ends; your own jobs run inside.  `claim`
    returns once the card is yours.  It lapses at its end whatever happens.  A claim that waits is withdrawn when this
    command dies.  `run --window` and `submit --window` claim the card for one job instead.
    """,
    examples=(
        ("tenure window claim --for 30m --wait", "half an hour of the card, as soon as it is free"),
        ("tenure window claim --begin 16:00 --for 2h", "announce it; jobs that cannot end before it do not start"),
        ("tenure run --window --shares 8 --gpu-memory 16Gi -- python bench.py", "the card for one job"),
    ),
)

WORDS = ("claim", "release", "ls")
STOPS = (signal.SIGINT, signal.SIGTERM)
LEASE_S = 20.0  # so long a claim lasts that nobody answers for
LOOK_S = 0.2
RENEW_S = 4.0


def run(call: Call) -> int:
    word, *rest = call.parsed.positionals or ["ls"]
    if word not in (*WORDS, "list"):
        raise Usage(f"{word!r}: there is claim, release [ID] and ls{nearest(word, WORDS)}")
    if rest and word != "release":
        raise Usage(f"{rest[0]!r}: `window {word}` takes nothing more")
    if word == "claim":
        return _claim(call)
    if word == "release":
        return _release(call, rest[0] if rest else None)
    return _ls(call)


class _Stopped(Exception):
    """Ctrl-C, or we were asked to end."""

    def __init__(self, number: int) -> None:
        self.number = number


def _claim(call: Call) -> int:
    parsed = call.parsed
    body: dict[str, Any] = {"wait": parsed.on("wait"), "including_resident": parsed.on("including-resident")}
    for key in ("for", "begin", "card"):
        value = parsed.text(key)
        if value is not None:
            body[key] = moment_here(value) if key == "begin" else value
    if "begin" in body and not parsed.on("wait") and not parsed.on("stay"):
        return _tell(call, call.client.post("/windows", body))
    window: Any = None
    try:
        for number in STOPS:
            signal.signal(number, _stop)
        window = call.client.post("/windows", body | {"lease_s": LEASE_S})
        window = _until_open(call, window)
        if window["state"] == "ended":
            print(f"tenure window: {window['id']}: {plain(window['message'])}", file=sys.stderr)
            return 1
        if not parsed.on("stay"):
            return _tell(call, _renew(call, window["id"], keep=True))
        _tell(call, window)
        return _stay(call, window)
    except _Stopped as stopped:
        for number in STOPS:
            signal.signal(number, signal.SIG_IGN)
        if window is not None:  # one that was claimed and never answered for lapses by itself
            patiently(lambda: call.client.post(_path(window["id"], ":release")), bound_s=5)
        return 0 if window and window["state"] == "active" and parsed.on("stay") else 128 + stopped.number


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise _Stopped(number)


def _renew(call: Call, id: str, *, keep: bool = False) -> Any:
    """Say that we are still here; the window as it is.  A platform that is away is waited for."""
    return patiently(lambda: call.client.post(_path(id, ":renew"), {"keep": keep}))


def _until_open(call: Call, window: Any) -> Any:
    told = ""
    while window["state"] in ("scheduled", "waiting"):
        time.sleep(LOOK_S)
        window = _renew(call, window["id"])
        if window["state"] in ("scheduled", "waiting") and window["message"] != told:
            told = window["message"]
            note(f"window {window['id']} {told}")
    return window


def _stay(call: Call, window: Any) -> int:
    """Until its end; whoever kills us lets it lapse."""
    note(f"window {window['id']} {plain(window['message'])}; Ctrl-C lets go of it")
    while window["state"] == "active":
        time.sleep(RENEW_S)
        window = _renew(call, window["id"])
    note(f"window {window['id']} is over: {plain(window['message'])}")
    return 0


def _release(call: Call, id: str | None) -> int:
    if id is None:
        mine = [window for window in call.client.get("/windows") if window["mine"] and window["job_id"] is None]
        if len(mine) != 1:
            there = ", ".join(window["id"] for window in mine)
            raise Usage(
                f"which one? yours are {there}" if mine else "you have no window; `tenure window ls` lists them"
            )
        id = str(mine[0]["id"])
    return _tell(call, call.client.post(_path(id, ":release")))


def _tell(call: Call, window: Any) -> int:
    if call.structured:
        emit(window, call.form)
    else:
        print(window["id"], flush=True)
    if window["state"] != "active" and call.form == "table":
        note(f"window {window['id']} {_standing(window)}")
    return 0


def _ls(call: Call) -> int:
    windows = call.client.get("/windows", all=call.parsed.on("all") or None)
    if call.structured:
        emit(windows, call.form)
    elif call.form == "name":
        for window in windows:
            print(window["id"])
    elif windows:
        head = ["WINDOW", "CARD", "OWNER", "JOB", "STATE", "LEFT", "WHAT"]
        print("\n".join(table(head, [_row(window) for window in windows])))
    else:
        note("no card is claimed")
    return 0


def _row(window: dict[str, Any]) -> list[object]:
    left = "-" if window["state"] == "ended" else _left(window)
    return [window["id"], window["card"], window["owner"], window["job_id"], window["state"], left, _standing(window)]


def _left(window: dict[str, Any]) -> str:
    from datetime import UTC, datetime

    end = moment(window["ends_at"])
    return span((end - datetime.now(UTC)).total_seconds() if end else window["length_s"])


def _standing(window: dict[str, Any]) -> str:
    return f"ended ({window['reason']}): {window['message']}" if window["state"] == "ended" else str(window["message"])


def _path(id: str, verb: str) -> str:
    return f"/windows/{quote(id, safe='')}{verb}"
