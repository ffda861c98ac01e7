"""`tenure up`: start the platform; with -d in the background, and back only when it is ready."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from tenure.settings import NAMES, strangers

from .call import Call
from .client import Refused, Unreachable
from .grammar import Option, Usage, Verb, nearest
from .holder import address, holder
from .progress import Progress
from .render import emit, note

VERB = Verb(
    usage="up [-d] [--card SHARESxMEMORY]… [--host HOST] [--port PORT]",
    options=(
        Option(names=("--detach", "-d"), help="in the background; returns 0 once it is ready"),
        Option(names=("--card",), value="8x16Gi", many=True, help="declare a card: its shares and its memory"),
        Option(names=("--host",), value="HOST", help="where to listen (default 127.0.0.1)"),
        Option(names=("--port",), value="PORT", help="which port (default: the last one, or any that is free)"),
        Option(names=("--timeout",), value="DURATION", help="how long -d waits for it to be ready (default 2m)"),
    ),
    details="""
    Everything of a platform lives in TENURE_HOME.  A first start writes the default policy there.  On a platform that
    runs already, `up -d` says so and returns 0; one that is going down it waits for.  Declared cards are remembered: a plain `up` knows them again.
    """,
    examples=(("tenure up -d --card 8x16Gi", "on a machine with no card: one declared card of eight shares"),),
)

UNAVAILABLE = 69


def run(call: Call) -> int:
    for name in strangers():
        note(f"{name} is no setting and changes nothing{nearest(name, NAMES)}")
    command = [sys.executable, "-P", "-m", "tenure.portal.daemon"]
    for card in call.parsed.many("card"):
        command += ["--card", card]
    for key in ("host", "port"):
        value = call.parsed.text(key)
        if value is not None:
            command += [f"--{key}", value]
    if call.parsed.on("detach"):
        return _detached(call, command)
    sys.stdout.flush()
    os.execv(command[0], command)


def _detached(call: Call, command: list[str]) -> int:
    from .times import seconds_of

    _check_cards(call.parsed.many("card"))
    deadline = time.monotonic() + seconds_of(call.parsed.text("timeout") or "2m", flag="--timeout")
    with Progress("starting the platform") as progress:
        while True:
            if holder(call.settings) is not None:
                said = _join_running(call, deadline, progress)
            else:
                said = _launch(call, command, deadline, progress)
            if said is not None:
                break
    return _report(call, said)


def _check_cards(words: Sequence[str]) -> None:
    """What is no card is told, whether or not a platform runs already.  Raises Usage."""
    if words:
        from tenure.domain.errors import InvalidRequest
        from tenure.telemetry.cards import declared

        try:
            declared(words)
        except InvalidRequest as error:
            raise Usage(f"--card: {error.message}") from None


def _launch(call: Call, command: list[str], deadline: float, progress: Progress) -> dict[str, Any] | None:
    """Start a daemon and hear how it went.  None: another one was quicker, look again."""
    log = call.settings.daemon_dir / "daemon.log"
    try:
        call.settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        log.parent.mkdir(mode=0o700, exist_ok=True)
        sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        return _not_ready(
            f"{error.filename or call.settings.home}: {(error.strerror or str(error)).lower()}; TENURE_HOME must be a place that you may write"
        )
    hear, tell = os.pipe()
    os.set_inheritable(tell, True)
    with os.fdopen(hear, "rb", buffering=0) as ear:
        try:
            child = subprocess.Popen(
                [*command, "--ready-fd", str(tell)], stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, pass_fds=(tell,), start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(tell)
            os.close(sink)
        asked = select.poll()
        asked.register(ear, select.POLLIN)
        heard = b""
        while not heard.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0:
                return _not_ready(f"it is not ready yet (process {child.pid} goes on; its log is {log})")
            if not asked.poll(min(left, 0.2) * 1000):
                progress.tell()
                continue
            data = ear.read(65536)
            if not data:
                code = child.wait()
                return _not_ready(
                    f"the daemon died (status {code}) before it was ready; the end of {log}:\n{_tail(log)}"
                )
            heard += data
    said: dict[str, Any] = json.loads(heard)
    if not said.get("ready"):
        child.wait()  # it has said its last word; what it held is free when this returns
    return None if said.get("code") == "AlreadyRunning" else said


def _join_running(call: Call, deadline: float, progress: Progress) -> dict[str, Any] | None:
    """Somebody holds the lock: wait until it is ready, or gone (None)."""
    leaving = False
    while time.monotonic() < deadline:
        who = holder(call.settings)
        if who is None:
            return None
        try:
            call.client.call("GET", "/readyz", timeout_s=5)
            said = [f"--{key}" for key in ("card", "host", "port") if call.parsed.many(key)]
            unheard = [f"{flag} has no effect on a platform that runs already" for flag in said]
            return {"ready": True, "already": True, "pid": who.pid, "url": address(call.settings), "notes": unheard}
        except (Unreachable, Refused) as error:
            leaving = leaving or (isinstance(error, Refused) and error.code == "GoingDown")
            progress.tell("the last one is going down" if leaving else "another daemon holds the lock and is not ready")
            time.sleep(0.05)
    if leaving:
        return _not_ready(
            "the platform that ran is still going down (`tenure down` waits for its end); nothing was started"
        )
    return _not_ready("another daemon holds the lock and does not become ready; `tenure doctor` looks for the cause")


def _report(call: Call, said: dict[str, Any]) -> int:
    said = {"ready": bool(said.get("ready")), "home": str(call.settings.home), **said}
    if call.structured:
        emit(said, call.form)
    elif said["ready"]:
        running = "is running already" if said.get("already") else "is up"
        print(f"tenure {running}: {said.get('url') or call.settings.api_socket} (home {call.settings.home})")
        if said.get("gateway"):
            print(f"models are asked at {said['gateway']}")
        for text in said.get("notes") or []:
            print(f"tenure: {text}", file=sys.stderr)
    if said["ready"]:
        return 0
    print(f"tenure up: {said.get('reason') or 'it did not become ready'}", file=sys.stderr)
    return int(said.get("exit") or UNAVAILABLE)


def _not_ready(reason: str) -> dict[str, Any]:
    return {"ready": False, "reason": reason}


def _tail(log: Any) -> str:
    try:
        return "\n".join(log.read_text("utf-8", "replace").splitlines()[-15:])
    except OSError as error:
        return str(error)
