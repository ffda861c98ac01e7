"""The log of a process that stays: bounded, its owner's alone, and with what is merely printed in the newest file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WRITER = """
import logging, os, sys
from pathlib import Path
from tenure.control import logfile

logfile.BYTES = 2000
logfile.log_to(Path(sys.argv[1]), foreground=sys.argv[2] == "foreground")
os.umask(0o000)
for number in range(300):
    logging.getLogger("tenure.x").info("line %d", number)
    logging.getLogger("uvicorn.access").info("chatter")
logging.getLogger("tenure.x").warning("a warning")
print("printed", flush=True)
os.abort()
"""


def _write(path: Path, how: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WRITER, str(path), how]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_a_log_is_turned_over_and_takes_last_words_along(tmp_path: Path) -> None:
    done = _write(tmp_path / "a.log", "background")
    assert (done.stdout, done.stderr) == ("", "")
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == ["a.log", "a.log.1", "a.log.2", "a.log.3"]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    newest = files[0].read_text()
    assert "printed\n" in newest
    assert "Fatal Python error: Aborted" in newest
    assert "Z INFO tenure.x: line 299" in newest
    assert "chatter" not in "".join(path.read_text() for path in files)


def test_in_the_foreground_warnings_are_shown_and_what_is_printed_stays_there(tmp_path: Path) -> None:
    done = _write(tmp_path / "a.log", "foreground")
    assert done.stdout == "printed\n"
    assert "WARNING tenure.x: a warning" in done.stderr
    assert "line 299" not in done.stderr
    assert "line 299" in (tmp_path / "a.log").read_text()
