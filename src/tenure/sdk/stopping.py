"""Being asked to stop: SIGTERM and SIGINT while a study runs.

The first signal asks.  A study that has ever looked (`run.stopping`, `run.check()`) is left to find out by itself; one
that has not is interrupted where it stands, as Ctrl-C would.  A second signal interrupts either.  Inside a section that
must not be cut (a checkpoint being written) the interruption waits until the section is left.

Handlers that were there before are called first and are put back at the end.  Python runs handlers between bytecodes of
the main thread: a signal that arrives inside C code is handled when that code returns to the interpreter.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import FrameType

__all__ = ["Interrupted", "StopSignals"]

_SIGNALS: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT)
_LONGEST_MS = 2**31 - 1  # that poll(2) takes: 24 days
_AGAIN_S = 0.5  # a study that was interrupted is interrupted again no sooner than this


class Interrupted(SystemExit):
    """The run was asked to stop.  Not an Exception, so that `except Exception` lets it through; uncaught, it exits 143."""

    def __init__(self, signum: int = signal.SIGTERM) -> None:
        super().__init__(128 + signum)
        self.signum = signum

    def __str__(self) -> str:
        return f"asked to stop by {signal.Signals(self.signum).name}"


class StopSignals:
    """Listens while it is installed.  Only the main thread may install it; elsewhere `install` does nothing."""

    def __init__(self) -> None:
        self.signum: int | None = None  # of the first request
        self.looked = False  # has the study ever asked?
        self.seen = False  # has it been told?
        self._raising = False  # may a handler raise now?
        self._sections = 0
        self._due: BaseException | None = None
        self._count = 0
        self._raised_at: float | None = None
        self._pid = os.getpid()
        self._previous: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}
        self._wake: tuple[int, int] | None = None

    def install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for signum in _SIGNALS:
            previous = signal.getsignal(signum)
            if previous is signal.SIG_IGN or previous is None:  # somebody decided that it is not to be heard
                continue
            self._previous[signum] = previous
        self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for signum in self._previous:
            signal.signal(signum, self._handle)
        _listening.add(self)

    def restore(self) -> None:
        """Put back what was there, unless the study has set a handler of its own since."""
        _listening.discard(self)
        for signum, previous in self._previous.items():
            if signal.getsignal(signum) == self._handle:
                signal.signal(signum, previous)
        self._previous.clear()
        if self._wake is not None:
            read, write = self._wake
            self._wake = None
            os.close(read)
            os.close(write)

    @property
    def stopping(self) -> bool:
        self.looked = True
        if self.signum is not None:
            self.seen = True
        return self.signum is not None

    def check(self) -> None:
        """Raise Interrupted if a stop was asked for."""
        if self.stopping:
            raise Interrupted(self.signum or signal.SIGTERM)

    def sleep(self, seconds: float) -> None:
        """Sleep, but not past a request to stop."""
        self.looked = True
        if self.signum is not None or seconds <= 0:
            return
        waiting = select.poll()  # not select(), which takes no descriptor above 1023
        if self._wake is not None:
            waiting.register(self._wake[0], select.POLLIN)
        waiting.poll(min(seconds * 1000, _LONGEST_MS))

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """The body of the study: only here may a handler raise."""
        self._raising = True
        try:
            yield
        finally:
            self._raising = False

    @contextlib.contextmanager
    def uncut(self) -> Iterator[None]:
        """A section that is finished before an interruption takes effect."""
        if threading.current_thread() is not threading.main_thread():  # handlers raise in the main thread alone
            yield
            return
        self._sections += 1
        try:
            yield
        finally:
            self._sections -= 1
        if self._sections == 0 and self._due is not None:
            due, self._due = self._due, None
            if self._raising:
                raise due

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:  # a child by a way that runs no fork hooks
            self._in_child()
            os.kill(os.getpid(), signum)
            return
        self._count += 1
        if self.signum is None:
            self.signum = signum
            if self._wake is not None:
                with contextlib.suppress(OSError):
                    os.write(self._wake[1], b"!")
        previous = self._previous.get(signum)
        if callable(previous) and previous is not signal.default_int_handler:
            previous(signum, frame)
        if not self._raising or (self.looked and self._count == 1):
            return
        now = time.monotonic()
        if self._raised_at is not None and now - self._raised_at < _AGAIN_S:
            return  # it is on its way out; a flood of signals must not cut off the closing of the record
        self._raised_at = now
        problem = KeyboardInterrupt() if signum == signal.SIGINT else Interrupted(signum)
        if self._sections:
            self._due = problem
            return
        self.seen = True
        raise problem

    def _in_child(self) -> None:
        """A forked child is its own: signals mean there what they meant before."""
        self._raising = False
        with contextlib.suppress(ValueError, OSError):  # ValueError: forked from another thread
            for signum, previous in self._previous.items():
                if signal.getsignal(signum) == self._handle:
                    signal.signal(signum, previous)
        self._previous.clear()


_listening: weakref.WeakSet[StopSignals] = weakref.WeakSet()


_masks = threading.local()


def _before_fork() -> None:
    # Python drops what a child was sent before its hooks have run: what is blocked meanwhile waits in the kernel instead
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS) if _listening else None


def _unblock() -> None:
    before = getattr(_masks, "before", None)
    _masks.before = None
    if before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_child() -> None:
    for listener in list(_listening):
        listener._in_child()
    _unblock()


os.register_at_fork(before=_before_fork, after_in_parent=_unblock, after_in_child=_in_child)
