"""`tenure doctor`: every part of the platform looked at, each with a verdict and what would mend it.

Each check is a function that answers a `Finding`; none of them changes anything, and none lets another one fail.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple
from urllib.parse import quote

import tenure
from tenure.settings import NAMES, strangers

from .call import Call
from .client import Refused, Unreachable
from .grammar import Verb, nearest
from .holder import address, holder
from .render import emit, paint, plain

VERB = Verb(
    usage="doctor",
    details="Each line is ok, warn or fail.  Exits with 1 if one is fail; a platform that does not run is a warning.",
)

LOW_BYTES = 1 << 30
COLOURS = {"ok": "32", "warn": "33", "fail": "31"}


class Finding(NamedTuple):
    name: str
    verdict: str  # ok, warn, fail
    message: str
    remedy: str = ""


def run(call: Call) -> int:
    findings = [finding for check in _CHECKS for finding in _safely(check, call)]
    if call.structured:
        emit([finding._asdict() for finding in findings], call.form)
    elif call.form == "name":
        print("\n".join(finding.name for finding in findings if finding.verdict != "ok"))
    else:
        for finding in findings:
            print(
                f"{paint(f'{finding.verdict:<4}', COLOURS[finding.verdict])}  {finding.name:<12} {plain(finding.message)}"
            )
            if finding.remedy:
                print(f"{'':<19}{plain(finding.remedy)}")
    return 1 if any(finding.verdict == "fail" for finding in findings) else 0


def _safely(check: Callable[[Call], Iterator[Finding]], call: Call) -> list[Finding]:
    try:
        return list(check(call))
    except Exception as error:
        return [Finding(check.__name__.strip("_"), "fail", f"could not be checked: {type(error).__name__}: {error}")]


def _home(call: Call) -> Iterator[Finding]:
    home = call.settings.home
    if not home.exists():
        yield Finding("home", "warn", f"{home} does not exist yet", "`tenure up -d` makes it")
        return
    if not os.access(home, os.W_OK | os.X_OK):
        yield Finding(
            "home",
            "fail",
            f"{home} cannot be written",
            "set TENURE_HOME to a place that you may write, or mend its owner",
        )
        return
    mode = home.stat().st_mode & 0o777
    if mode & 0o022:
        yield Finding("home", "warn", f"{home} can be written by others (mode {mode:o})", f"chmod 700 {home}")
    else:
        yield Finding("home", "ok", f"{home} can be written")


def _settings(call: Call) -> Iterator[Finding]:
    unknown = strangers()
    for name in unknown:
        yield Finding(
            "settings", "warn", f"{name} is no setting{nearest(name, NAMES)}", "docs/cli.md lists what is read"
        )
    if not unknown:
        yield Finding("settings", "ok", ", ".join(name for name in NAMES if os.environ.get(name)) or "none is set")


def _disk(call: Call) -> Iterator[Finding]:
    place = call.settings.home
    while not place.exists():
        place = place.parent
    usage = shutil.disk_usage(place)
    free = f"{usage.free / (1 << 30):.1f} GiB free of {usage.total / (1 << 30):.1f}"
    if usage.free < LOW_BYTES // 10:
        yield Finding("disk", "fail", free, "records and logs cannot be written for long; free some space")
    elif usage.free < LOW_BYTES:
        yield Finding("disk", "warn", free, "logs may fill it; free some space or move TENURE_HOME")
    else:
        yield Finding("disk", "ok", free)


def _python(call: Call) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    missing = [
        name for name in ("fastapi", "uvicorn", "sqlalchemy", "yaml", "psutil", "pynvml") if not _importable(name)
    ]
    if missing:
        yield Finding("python", "fail", f"{version}, without {', '.join(missing)}", "pip install 'tenure[server]'")
    else:
        yield Finding("python", "ok", f"{version} at {sys.executable}")


def _git(call: Call) -> Iterator[Finding]:
    found = shutil.which("git")
    if found:
        yield Finding("git", "ok", found)
    else:
        yield Finding("git", "warn", "there is no git", "records name a commit only where git can be asked; install it")


def _cgroup(call: Call) -> Iterator[Finding]:
    from tenure.backends.local.cgroup import Cgroup

    group = Cgroup.create(f"tenure-doctor-{os.getpid()}")
    if group is not None:
        os.rmdir(group.path)
        yield Finding("cgroup", "ok", f"groups can be made in {os.path.dirname(group.path)}")
    else:
        yield Finding(
            "cgroup",
            "warn",
            "no control group (v2) can be made here; process trees are followed by parentage alone",
            "start the platform in a delegated unit: systemd-run --user --scope -p Delegate=yes tenure up -d",
        )


def _daemon(call: Call) -> Iterator[Finding]:
    who = holder(call.settings) if call.settings.url is None else None
    try:
        status = call.client.get("/status")
    except Unreachable as error:
        if who is None:
            yield Finding(
                "daemon", "warn", "no platform runs here" if call.settings.url is None else str(error), "tenure up -d"
            )
        else:
            yield Finding(
                "daemon",
                "fail",
                f"process {who.pid} holds the lock and does not answer",
                f"look into {call.settings.daemon_dir / 'daemon.log'}; `tenure down` ends it",
            )
        return
    except Refused as error:
        yield Finding(
            "daemon",
            "fail",
            f"it answers with an error: {error}",
            f"look into {call.settings.daemon_dir / 'daemon.log'}",
        )
        return
    where = call.settings.url or address(call.settings) or str(call.settings.api_socket)
    yield Finding("daemon", "ok", f"process {status.get('pid')} answers at {where}, since {status.get('started_at')}")
    if status.get("version") == tenure.__version__:
        yield Finding("version", "ok", tenure.__version__)
    else:
        yield Finding(
            "version",
            "warn",
            f"this program is {tenure.__version__}, the daemon {status.get('version')}",
            "tenure down --keep-jobs && tenure up -d",
        )
    yield from _of_status(status)


def _of_status(status: dict[str, Any]) -> Iterator[Finding]:
    cards, source = status.get("cards"), status.get("card_source")
    count = cards if isinstance(cards, int) else len(cards or [])
    if source == "none" or not count:
        yield Finding(
            "cards",
            "warn",
            "no card: NVML finds none and none is declared",
            "on a machine with no card, `tenure up --card 8x16Gi` declares one",
        )
    else:
        yield Finding(
            "cards",
            "ok",
            f"{count} {'card' if count == 1 else 'cards'}, {'declared, not measured' if source == 'declared' else source}",
        )
    backend = status.get("backend")
    if isinstance(backend, dict):
        verdict = "ok" if backend.get("ok", True) else "fail"
        yield Finding("backend", verdict, str(backend.get("message") or backend.get("name") or "ready"))
    for problem in status.get("problems") or []:
        text = problem.get("message") if isinstance(problem, dict) else problem
        yield Finding("problem", "warn", str(text))


def _supervisors(call: Call) -> Iterator[Finding]:
    from .supervisors import alive

    left = alive(call.settings)
    if left and holder(call.settings) is None:
        yield Finding(
            "supervisors",
            "warn",
            f"{len(left)} run with no daemon: {', '.join(left[:5])}",
            "`tenure up -d` adopts them",
        )
    else:
        yield Finding("supervisors", "ok", f"{len(left)} alive")


def _ledger(call: Call) -> Iterator[Finding]:
    if call.settings.ledger_file is None:
        yield Finding("ledger", "ok", f"{call.settings.ledger_shown}: its server keeps it whole")
        return
    path = str(call.settings.ledger_file)
    if not os.path.exists(path):
        yield Finding("ledger", "warn", f"{path} does not exist yet", "`tenure up -d` makes it")
        return
    with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=5)) as connection:
        answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if answer == "ok":
        yield Finding("ledger", "ok", f"{path} is whole")
    else:
        yield Finding("ledger", "fail", f"{path}: {answer}", "stop the platform and restore the ledger from a copy")


def _tokens(call: Call) -> Iterator[Finding]:
    folder = call.settings.tokens_dir
    try:
        files = sorted(folder.iterdir())
    except FileNotFoundError:
        yield Finding("tokens", "ok", "none yet")
        return
    open_ones = [path for path in [folder, *files] if path.stat().st_mode & 0o077]
    if open_ones:
        yield Finding(
            "tokens", "fail", f"others can read {open_ones[0]}", f"chmod -R go= {folder}; then replace the tokens"
        )
    else:
        yield Finding("tokens", "ok", f"{len(files)}, readable by you alone")


def _importable(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


_CHECKS: tuple[Callable[[Call], Iterator[Finding]], ...] = (
    _home, _settings, _disk, _python, _git, _cgroup, _daemon, _supervisors, _ledger, _tokens,
)  # fmt: skip
