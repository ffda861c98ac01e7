"""A real platform in a home of its own: real ledger, engine, supervisors and processes, no door."""

from __future__ import annotations

import contextlib
import json
import shlex
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.control import verbs, views
from tenure.control.app import Platform
from tenure.control.caller import Caller
from tenure.domain.errors import Conflict
from tenure.ledger import fold
from tenure.settings import load

ME = Caller(user="tester", role="operator", via="internal")


class Gate:
    """What a job waits for: it lasts until the test opens the gate, however busy the machine is."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def argv(self, before: str = "", after: str = "") -> tuple[str, ...]:
        """A program that does one thing, waits, and does the other."""
        return ("bash", "-c", f"{before}\nuntil [ -e {shlex.quote(str(self.file))} ]; do sleep 0.05; done\n{after}")

    def open(self) -> None:
        self.file.touch()


class House:
    """One home.  `open` and `close` may be called again and again, as a machine's owner would."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.platform: Platform

    def open(self, card: str | None = "8x16Gi", **env: str) -> House:
        env |= {"TENURE_HOME": str(self.home), "PATH": "/usr/bin:/bin", "HOME": str(self.home.parent)}
        settings = load(env)
        self.platform = Platform.open(settings, cards_flag=[card] if card else [])
        self.platform.start()
        return self

    def close(self, *, keep_jobs: bool = False) -> None:
        self.platform.stop(keep_jobs=keep_jobs, patience_s=20)

    # ------------------------------------------------------------------ asking

    def submit(self, *argv: str, **fields: Any) -> str:
        return str(self.answer(*argv, **fields)["id"])

    def answer(self, *argv: str, key: str | None = None, **fields: Any) -> dict[str, Any]:
        body = {"argv": list(argv), "workdir": str(self.home.parent)} | fields
        body = {name: value for name, value in body.items() if value is not None}
        return verbs.submit(self.platform, body, caller=ME, idempotency_key=key)

    def gpu(self, *argv: str, shares: int = 1, memory: str = "1Gi", **fields: Any) -> str:
        return self.submit(*argv, shares=shares, gpu_memory=memory, **fields)

    def show(self, job: str) -> dict[str, Any]:
        return views.show(self.platform, job)

    def cancel(self, job: str, **fields: Any) -> dict[str, Any]:
        return verbs.cancel(self.platform, job, caller=ME, **fields)

    def clear(self) -> None:
        """Cancel whatever is left; what ends by itself meanwhile needs no word."""
        for row in list(self.platform.ledger.live_jobs()):
            with contextlib.suppress(Conflict):
                self.cancel(row.id, grace_s=0.2)

    def gate(self, name: str = "gate") -> Gate:
        return Gate(self.home.parent / name)

    @contextlib.contextmanager
    def refusing(self, what: str) -> Iterator[None]:
        """While it lasts the ledger takes no such write, nor anything of its transaction: as a disk that is full."""
        with contextlib.closing(sqlite3.connect(self.home / "ledger.sqlite3", timeout=20)) as ledger:
            ledger.execute(f"CREATE TRIGGER full BEFORE {what} BEGIN SELECT RAISE(ABORT, 'it is full'); END")
            try:
                yield
            finally:
                ledger.execute("DROP TRIGGER full")

    def run_dir(self, job: str, attempt: int = 1) -> Path:
        return self.home / "runs" / f"{job}.{attempt}"

    def out(self, job: str, attempt: int = 1) -> str:
        return (self.run_dir(job, attempt) / "stdout.log").read_text()

    # ------------------------------------------------------------------ waiting for events

    def until(self, what: str, holds: Callable[[], Any], *, seconds: float = 30.0) -> Any:
        """Sleep on the diary until `holds`; it is asked once more at the end."""
        end = time.monotonic() + seconds
        while True:
            cursor = self.platform.news.cursor
            found = holds()
            if found:
                return found
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds:.0f} s: {what}")
            self.platform.news.wait(cursor, 0.25)

    def wait(self, job: str, state: str = "ended", *, seconds: float = 30.0) -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            shown = self.show(job)
            return shown if shown["state"] == state else None

        return self.until(f"{job} is {state}: {self.show(job)}", there, seconds=seconds)

    def wait_reason(self, job: str, reason: str) -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            shown = self.show(job)
            return shown if shown["state"] == "queued" and shown["reason"] == reason else None

        return self.until(f"{job} waits for {reason}: {self.show(job)}", there)

    def wait_out(self, job: str, word: str, attempt: int = 1) -> None:
        path = self.run_dir(job, attempt) / "stdout.log"
        self.until(f"{word!r} in {path}", lambda: path.exists() and word in path.read_text())

    # ------------------------------------------------------------------ laws

    def check_laws(self, *, shares: int = 8, memory: int = 16 << 30) -> None:
        """Law 1, law 6 and the card's arithmetic, read off the diary; reservations are those of live jobs."""
        ledger = self.platform.ledger
        while True:  # the loop may still write: compare what was read between two writes
            cursor = ledger.last_event_id()
            events = ledger.events(limit=1_000_000)
            folded = fold(events)
            rows = {job: ledger.job(job) for job in folded.jobs}
            attempts = {run: ledger.attempt(run) for run in folded.attempts}
            live = {row.id for row in ledger.live_jobs() if row.reservation}
            if ledger.last_event_id() == cursor:
                break
        assert rows == dict(folded.jobs)
        assert attempts == dict(folded.attempts)
        held: dict[str, tuple[int, int]] = {}
        for event in events:
            if "reservation" in event.changes and event.job_id is not None:
                booked = event.changes["reservation"]
                booked = json.loads(booked) if isinstance(booked, str) else booked
                places = (booked or {}).get("placements", [])  # type: ignore[union-attr]
                held[event.job_id] = (sum(p["shares"] for p in places), sum(p["memory"] for p in places))
            assert sum(s for s, _ in held.values()) <= shares, event
            assert sum(m for _, m in held.values()) <= memory, event
        assert {job for job, amounts in held.items() if any(amounts)} <= live


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home of 訓練"


@pytest.fixture
def house(home: Path) -> Iterator[House]:
    house = House(home).open()
    try:
        yield house
        house.check_laws()
    finally:
        house.clear()
        house.close()
