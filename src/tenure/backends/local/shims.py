"""Programs that #SBATCH scripts expect on their PATH: `srun`.

A login shell (`#!/bin/bash -l`, as many such scripts begin) sets PATH anew before its first line.  `BASH_ENV` is read
after that: it puts them first again.
"""

from __future__ import annotations

import os
import shlex
import sys

from .layout import SHIM_DIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path  # half a megabyte in every supervisor, which needs none of it

__all__ = ["add_to", "write_shims"]

_LOGIN_FILE = "login.sh"
_LOGIN = """\
case "$PATH" in "$TENURE_SHIMS":*) ;; *) PATH="$TENURE_SHIMS:$PATH" ;; esac
if [ -n "$TENURE_BASH_ENV" ]; then . "$TENURE_BASH_ENV"; fi
"""


def add_to(env: dict[str, str], state_dir: str, script: str | None) -> None:
    """Put the shims first on the PATH of a process, and keep them there if its script begins with a login shell."""
    shims = os.path.join(state_dir, SHIM_DIR)
    env["PATH"] = f"{shims}:{env.get('PATH', os.defpath)}"
    first = (script or "").partition("\n")[0].split()
    if first and first[0].startswith("#!") and any(word in ("-l", "--login") for word in first[1:]):
        env["TENURE_SHIMS"] = shims
        env["TENURE_BASH_ENV"] = env.get("BASH_ENV", "")
        env["BASH_ENV"] = os.path.join(shims, _LOGIN_FILE)


def write_shims(state_dir: Path) -> None:
    """Write them into `state_dir/bin`, with the interpreter and the place of this installation.  Raises OSError."""
    directory = state_dir / SHIM_DIR
    directory.mkdir(exist_ok=True, mode=0o700)
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "srun.py")
    text = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S {shlex.quote(program)} "$@"\n'
    _write(directory / "srun", text, 0o755)
    _write(directory / _LOGIN_FILE, _LOGIN, 0o644)


def _write(target: Path, text: str, mode: int) -> None:
    if target.exists() and target.read_text() == text:
        return
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "w") as file:
        file.write(text)
    os.rename(draft, target)
