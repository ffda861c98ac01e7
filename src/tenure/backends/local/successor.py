"""After a supervisor that died without a word: who is left is ended, and what is known is written down.

A process is signalled only if it is provably of this attempt: same boot, the same run directory (not a copy of it), and
then the attempt's own control group, or the environment it was started with, or pid and start time as recorded together
with that environment.  A stranger is never signalled; on another boot, or beside a copy, nobody is.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from collections.abc import Mapping
from typing import Any

from tenure.sdk.record import RecordWriter, read_record

from . import processes
from .cgroup import Cgroup
from .clock import Clock
from .facts import Facts
from .journal import Journal, read_lines
from .layout import CONTROL_SOCKET, JOURNAL, LOCK, NEWS_SOCKET, REQUESTS, SPEC
from .locks import try_lock
from .processes import Identity
from .sockets import send_datagram
from .verdict import Verdict, decide

__all__ = ["Census", "succeed", "survivors_of"]

_LONGEST_GRACE_S = 30.0
_PASS_S = 0.2
_LOOK_S = 0.5  # somebody may ask for less grace


class Census:
    """Every process of the machine by the run directory in its environment, taken once and asked often."""

    def __init__(self) -> None:
        self._by_run_dir: dict[str, list[Identity]] | None = None

    def of(self, run_dir: str) -> list[Identity]:
        """Those that were started with this TENURE_RUN_DIR; this process and its ancestors are never among them."""
        if self._by_run_dir is None:
            self._by_run_dir = {}
            mine = processes.ancestors(os.getpid())
            for pid in processes.everyone():
                who = processes.identity(pid)
                value = processes.environ_value(pid, "TENURE_RUN_DIR") if who and pid not in mine else None
                if who is not None and value is not None:
                    self._by_run_dir.setdefault(value, []).append(who)
        return self._by_run_dir.get(run_dir, [])


def _same_place(facts: Facts, run_dir: str, boot: str) -> bool:
    if facts.opened.get("boot_id") != boot:
        return False
    status = os.stat(run_dir)
    return list(facts.opened.get("directory", ())) == [run_dir, status.st_dev, status.st_ino]


def survivors_of(facts: Facts, run_dir: str, *, boot: str, census: Census) -> list[Identity]:
    """Who of a lost attempt still lives."""
    if not _same_place(facts, run_dir, boot):
        return []
    found = set(census.of(run_dir))
    group = facts.opened.get("cgroup")
    if group:
        found.update(who for pid in Cgroup(group).pids() if (who := processes.identity(pid)) is not None)
    return sorted(found)


def succeed(run_dir: str, *, state_dir: str, boot: str, clock: Clock | None = None) -> bool:
    """Take over a lost attempt and bring it to its end.  False where nothing is lost, or somebody is at it already.

    Returns only when nobody of it is left: call it where waiting does no harm.
    """
    lock = try_lock(os.path.join(run_dir, LOCK))
    if lock is None:
        return False
    try:
        journal = Journal(os.path.join(run_dir, JOURNAL), clock or Clock())
        if journal.facts.ended or journal.facts.known["state"] == "absent":
            journal.close()
            return False
        _Successor(run_dir, state_dir, boot, journal, clock or Clock()).run()
        return True
    finally:
        os.close(lock)


class _Successor:
    def __init__(self, run_dir: str, state_dir: str, boot: str, journal: Journal, clock: Clock) -> None:
        self._run_dir, self._state_dir, self._boot = run_dir, state_dir, boot
        self._journal, self._clock, self._facts = journal, clock, journal.facts
        self._record = RecordWriter(run_dir, by="supervisor")
        self._spec = self._read_spec()
        self._rebooted = self._facts.opened.get("boot_id") != boot

    def _read_spec(self) -> dict[str, Any]:
        try:
            with open(os.path.join(self._run_dir, SPEC), encoding="utf-8", errors="surrogateescape") as file:
                found: dict[str, Any] = json.load(file)
                return found
        except (OSError, ValueError):
            return {}

    def run(self) -> None:
        reason = "MachineRestarted" if self._rebooted else "SupervisorLost"
        last_sign = self._last_sign()
        self._mark_stops()
        self._journal.write("successor", reason=reason, pid=os.getpid())
        ended_anyone = self._end_survivors()
        verdict = self._verdict(reason)
        ended_at = self._clock.wall() if ended_anyone or not self._rebooted else last_sign
        ended_at = max(ended_at, self._facts.known.get("started_at") or 0)
        with contextlib.suppress(OSError):
            self._record.closed(
                verdict.outcome,
                exit_code=verdict.exit_code,
                signal=verdict.signal,
                reason=verdict.reason,
                message=verdict.message,
            )
        self._journal.write(
            "ended", state="ended", outcome=verdict.outcome, exit_code=verdict.exit_code, signal=verdict.signal,
            reason=verdict.reason, message=verdict.message, failed_rank=verdict.failed_rank, ended_at=ended_at, elapsed_us=None,
        )  # fmt: skip
        self._tell()
        group = self._facts.opened.get("cgroup")
        if group and _same_place(self._facts, self._run_dir, self._boot):
            Cgroup(group).remove()
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._run_dir, CONTROL_SOCKET))
        with contextlib.suppress(OSError):
            os.truncate(os.path.join(self._run_dir, LOCK), 0)  # the blocks kept for the last words
        self._record.close()
        self._journal.close()

    def _mark_stops(self) -> None:
        """Stops that were asked for while nobody was there to hear them."""
        known = {stop["stop"] for stop in self._facts.stops}
        for request in read_lines(os.path.join(self._run_dir, REQUESTS)):
            if request["kind"] == "stop" and request["stop"] not in known:
                mark = {
                    name: request.get(name, "") for name in ("stop", "reason", "message", "by", "grace_s", "signal")
                }
                known.add(mark["stop"])
                with contextlib.suppress(OSError):
                    self._record.stop_requested(
                        mark["stop"], mark["reason"], message=mark["message"], by=mark["by"] or None
                    )
                self._journal.write("stop", **mark)

    def _end_survivors(self) -> bool:
        grace = min(_LONGEST_GRACE_S, float(self._spec.get("job", {}).get("grace_s", _LONGEST_GRACE_S)))
        began = self._clock.monotonic()
        told: set[Identity] = set()
        named: list[dict[str, Any]] = []
        while alive := survivors_of(self._facts, self._run_dir, boot=self._boot, census=Census()):
            self._mark_stops()  # also those that are asked for meanwhile
            left = self._grace_of_stops()
            kill_at = began + grace if left is None else self._clock.monotonic() + left
            killing = self._clock.monotonic() >= kill_at
            for who in alive:
                if killing or who not in told:
                    with contextlib.suppress(PermissionError):
                        processes.send(who, signal.SIGKILL if killing else signal.SIGTERM)
                        if not killing:
                            processes.send(who, signal.SIGCONT)
                    told.add(who)
            now = [{"pid": w.pid, "started": w.started, "command": processes.command(w.pid)} for w in alive]
            if now != named:
                named = now
                self._journal.write("survivors", survivors=named)
                self._tell()
            _wait_for_one(alive, max(0.02, min(_PASS_S if killing else _LOOK_S, kill_at - self._clock.monotonic())))
        return bool(told)

    def _grace_of_stops(self) -> float | None:
        """Seconds until the earliest grace that was granted by a stop is over; None where nobody asked for one."""
        now = self._clock.elapsed()
        return min(
            (float(stop["grace_s"]) - (now - stop["elapsed"]) / 1e6 for stop in self._facts.stops if _timed(stop)),
            default=None,
        )

    def _verdict(self, reason: str) -> Verdict:
        facts, job = self._facts, self._spec.get("job", {})
        record = read_record(self._run_dir)
        own = record.closed if record.closed is not None and record.closed["by"] == "run" else None
        where = "the machine was restarted" if self._rebooted else "the supervisor was killed"
        gone = facts.exits and not facts.members and job.get("policy") != "each"
        if gone and not facts.stops:  # they had all left by themselves before the supervisor died
            closed = {"outcome": record.outcome, "reason": own["reason"], "message": own["message"]} if own else None
            failure = next((exit_ for exit_ in facts.exits if exit_.failed), None)
            main = min(facts.exits, key=lambda exit_: exit_.rank)
            size = len(self._spec.get("processes", ())) or 1
            return decide(main=main, failure=failure, stops=(), closed=closed, size=size)
        if own is not None and record.outcome is not None:
            return Verdict(record.outcome, own["exit_code"], own["signal"], own["reason"], own["message"] or where)
        if any(stop["stop"] == "cancel" for stop in facts.stops):
            return Verdict("cancelled", None, None, reason, f"{where} while a cancel was on its way")
        return Verdict("interrupted", None, None, reason, f"{where}; what was left of the attempt has been ended")

    def _last_sign(self) -> int:
        """The wall time of the last thing that was written in the run directory."""
        latest = 0
        for entry in os.scandir(self._run_dir):
            with contextlib.suppress(OSError):
                if entry.is_file(follow_symlinks=False) and entry.name not in (LOCK, SPEC):
                    latest = max(latest, entry.stat().st_mtime_ns // 1000)
        return latest

    def _tell(self) -> None:
        news = json.dumps({**self._facts.known})
        send_datagram(os.path.join(self._state_dir, NEWS_SOCKET), news.encode())


def _timed(stop: Mapping[str, Any]) -> bool:
    return all(isinstance(stop.get(name), int | float) for name in ("grace_s", "elapsed"))


def _wait_for_one(alive: list[Identity], timeout_s: float) -> None:
    """Until one of them leaves, or the time is up."""
    with contextlib.ExitStack() as stack:
        epoll = stack.enter_context(select.epoll())
        for who in alive[:256]:
            with contextlib.suppress(OSError):
                fd = os.pidfd_open(who.pid)
                stack.callback(os.close, fd)
                epoll.register(fd, select.EPOLLIN)
        epoll.poll(timeout_s)
