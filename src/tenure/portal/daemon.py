"""The process that `tenure up` starts: one lock, one platform, one portal, and an orderly end.

Promises: whoever holds `daemon/lock` is the platform of this home, and nobody else is; a waiting `up -d` hears exactly one
line of JSON, ready or why not; SIGTERM and SIGINT stop the platform with its jobs; SIGUSR1, and SIGHUP of a terminal that closes, leave the jobs running.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import gc
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from tenure.control.heap import give_back
from tenure.control.logfile import log_to
from tenure.domain.errors import InvalidRequest, TenureError, Unavailable
from tenure.settings import Settings, address_of, load, port_of

__all__ = ["main"]

# An `up` beside a `down` or a look at the lock: it is given a moment before it says that another one runs.
LOCK_PATIENCE_S = 1.0

log = logging.getLogger("tenure.daemon")


class AlreadyRunning(Unavailable):
    """Another process holds this home's lock."""

    code = "AlreadyRunning"


class _Ear:
    """Who waits for the news of the start: `up -d` behind a descriptor, or a person before a terminal."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def tell(self, said: Mapping[str, Any]) -> None:
        if self._fd is None:
            if said["ready"]:
                print(f"tenure is up: {said['url']} (home {said['home']}); Ctrl-C stops it", flush=True)
                print(f"models are asked at {said['gateway']}", flush=True)
            else:
                print(f"tenure up: {said['reason']}", file=sys.stderr, flush=True)
            return
        with contextlib.suppress(BrokenPipeError), os.fdopen(self._fd, "wb") as pipe:
            pipe.write(json.dumps(said).encode() + b"\n")
        self._fd = None


class _End:
    """When to stop, and whether the jobs stay.  The first reason decides."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.keep_jobs = False

    def ask(self, keep_jobs: bool) -> None:
        if not self.asked.is_set():
            self.keep_jobs = keep_jobs
        self.asked.set()

    def heard(self, number: int, frame: FrameType | None) -> None:
        self.ask(number in (signal.SIGUSR1, signal.SIGHUP))


def main(argv: Sequence[str] | None = None) -> int:
    """0 after an orderly end, 69 if it could not start, 2 if what it was given can never work."""
    give_back()
    given = _arguments(argv)
    ear = _Ear(given.ready_fd)
    end = _End()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, end.heard)
    try:
        settings = _settings(given)
        _own_place(settings)
        lock = _lock(settings.daemon_dir / "lock")
    except (TenureError, OSError) as error:
        ear.tell(_refusal(error))
        return _code(error)
    try:
        log_to(settings.daemon_dir / "daemon.log", foreground=given.ready_fd is None)
        if given.only_to_stop:
            return _stop_what_is_left(settings)
        return _serve(settings, given.card, ear, end)
    except (TenureError, OSError) as error:
        log.error("cannot start: %s", error)
        ear.tell(_refusal(error))
        return _code(error)
    except Exception as error:
        log.exception("the daemon failed")
        ear.tell(
            {
                "ready": False,
                "code": "HouseFault",
                "exit": 70,
                "reason": f"a bug: {type(error).__name__}: {error} (see {settings.daemon_dir / 'daemon.log'})",
            }
        )
        return 70
    finally:
        # The lock goes with the process, not before: a free lock means that nothing of this daemon is left.
        log.debug("descriptor %d holds the lock to the last", lock)


def _serve(settings: Settings, cards: Sequence[str], ear: _Ear, end: _End) -> int:
    # Heavy, and pointless before the lock is ours: a second `up` is turned away in milliseconds.
    from tenure.control.app import Platform

    from .bell import Bell
    from .server import PortalServer

    platform = Platform.open(settings, cards_flag=cards)
    platform.on_stop(end.ask)
    try:
        platform.start()
        portal = PortalServer(platform)
        bell = Bell(platform)
        url = portal.start().url
        bell.start()
    except BaseException:
        platform.stop(keep_jobs=True)
        raise
    gc.collect()
    gc.freeze()  # what was loaded stays: no later collection walks it again, for tens of milliseconds each
    ear.tell({"ready": True, "pid": os.getpid(), "home": str(settings.home), "url": url, "gateway": bell.url})
    log.info("ready at %s, models at %s", url, bell.url)
    try:
        _wait(end)
        log.info("stopping%s", ", jobs go on" if end.keep_jobs else "")
    finally:
        # The doors stay open while jobs have their grace, so that whoever stops the platform can look on.
        try:
            if not end.keep_jobs:
                platform.drain()
        finally:
            bell.stop()
            platform.models.close()
            portal.stop()
            platform.close(jobs_go_on=end.keep_jobs)
    log.info("stopped")
    return 0


def _stop_what_is_left(settings: Settings) -> int:
    """Adopt what a dead daemon left running, and stop it in order: no door is opened."""
    from tenure.control.app import Platform

    platform = Platform.open(settings)
    platform.start()
    platform.stop(keep_jobs=False)
    return 0


def _wait(end: _End) -> None:
    """A wait that signals can interrupt on every Python: a bare Event.wait() would, but only from the main thread."""
    while not end.asked.wait(3600):
        pass


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tenure up", allow_abbrev=False)
    parser.add_argument("--card", action="append", default=[])
    parser.add_argument("--host")
    parser.add_argument("--port")
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--only-to-stop", action="store_true")
    return parser.parse_args(argv)


def _settings(given: argparse.Namespace) -> Settings:
    settings = load()
    if given.host:
        settings = replace(settings, host=address_of("--host", given.host))
    if given.port is not None:
        settings = replace(settings, port=port_of("--port", given.port))
    return settings


def _own_place(settings: Settings) -> None:
    """The home and the daemon's folder, for nobody else's eyes.  Raises Unavailable where they cannot be written."""
    try:
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings.daemon_dir.mkdir(mode=0o700, exist_ok=True)
        probe = settings.home / f".probe-{os.getpid()}"
        os.close(os.open(probe, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
        probe.unlink()
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "free some space there" if full else "TENURE_HOME must be a place that you may write"
        raise Unavailable(
            f"{error.filename or settings.home}: {(error.strerror or str(error)).lower()}; {remedy}",
            code="HomeUnusable",
        ) from error
    os.chdir(settings.home)  # whatever directory `up` was called in may be unmounted


def _lock(path: Path) -> int:
    """Hold the lock for life; its text names the holder for people.  Raises AlreadyRunning."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                said = os.pread(fd, 200, 0).decode("utf-8", "replace").strip()
                os.close(fd)
                raise AlreadyRunning(
                    f"another daemon runs in {path.parent.parent} ({said or 'it does not say which'}); `tenure down` stops it"
                ) from None
        time.sleep(0.02)
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps({"pid": os.getpid()}).encode() + b"\n", 0)
    return fd


def _refusal(error: Exception) -> dict[str, Any]:
    code = error.code if isinstance(error, TenureError) else type(error).__name__
    return {"ready": False, "code": code, "exit": _code(error), "reason": _reason(error)}


def _reason(error: Exception) -> str:
    """The house's own errors say where; of the system's some do not."""
    if isinstance(error, TenureError) or not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return f"{error.filename or 'TENURE_HOME'}: {error.strerror.lower()}"


def _code(error: Exception) -> int:
    """A bad flag is a usage error; everything else means that there is no platform to reach."""
    return 2 if type(error) is InvalidRequest and not isinstance(error, OSError) else 69


if __name__ == "__main__":
    sys.exit(main())
