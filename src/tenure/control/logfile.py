"""The log of a process that stays for weeks: turned over by size, its times in UTC, and with what is merely printed."""

from __future__ import annotations

import faulthandler
import logging
import logging.handlers
import os
import time
from io import TextIOWrapper
from pathlib import Path

__all__ = ["log_to"]

BYTES = 10_000_000
FILES = 3  # besides the newest
CHATTY = ("alembic", "uvicorn", "asyncio")


def log_to(path: Path, *, foreground: bool = False) -> None:
    """From here on everything from INFO up is written there, for its owner alone; in the foreground warnings are shown.

    In the background stdout and stderr go there as well: a crash's last words stand in the newest file.  Raises OSError.
    """
    form = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
    form.converter = time.gmtime
    handlers: list[logging.Handler] = [_Rotating(path, redirect=not foreground)]
    if foreground:
        handlers.append(logging.StreamHandler())
        handlers[-1].setLevel(logging.WARNING)
    for one in handlers:
        one.setFormatter(form)
    logging.basicConfig(level=logging.INFO, handlers=handlers, force=True)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    faulthandler.enable()


class _Rotating(logging.handlers.RotatingFileHandler):
    """Takes stdout and stderr along to each new file."""

    def __init__(self, path: Path, *, redirect: bool) -> None:
        self._redirect = redirect
        super().__init__(path, maxBytes=BYTES, backupCount=FILES, encoding="utf-8")
        self._take()

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, opener=_owned)

    def doRollover(self) -> None:
        super().doRollover()
        self._take()

    def _take(self) -> None:
        if self._redirect and self.stream is not None:
            for fd in (1, 2):
                os.dup2(self.stream.fileno(), fd)


def _owned(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
