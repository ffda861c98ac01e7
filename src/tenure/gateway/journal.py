"""One line of JSON for each request for inference: what a page counts and what advice about idle times is read from.

No token, no prompt and no answer ever stands in it.  Lines of two files of at most `BYTES` each are kept.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

__all__ = ["Journal"]

BYTES = 64 * 1024 * 1024


class Journal:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._open()

    def write(self, **facts: object) -> None:
        """Never raises: an answer is worth more than its line."""
        line = json.dumps({"at": round(time.time(), 3), **facts}, ensure_ascii=True, separators=(",", ":")) + "\n"
        try:
            self._size += os.write(self._fd, line.encode())
            if self._size > BYTES:
                os.close(self._fd)
                self.path.replace(self.path.with_suffix(".old.jsonl"))
                self._open()
        except OSError:
            return

    def _open(self) -> None:
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size
