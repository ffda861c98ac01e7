"""Programs that #SBATCH scripts expect on their PATH: `srun`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from .layout import SHIM_DIR

__all__ = ["write_shims"]


def write_shims(state_dir: Path) -> None:
    """Write them into `state_dir/bin`, with the interpreter and the place of this installation.  Raises OSError."""
    directory = state_dir / SHIM_DIR
    directory.mkdir(exist_ok=True, mode=0o700)
    program = Path(__file__).with_name("srun.py")
    text = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S {shlex.quote(str(program))} "$@"\n'
    target, draft = directory / "srun", directory / f"srun.{os.getpid()}"
    if target.exists() and target.read_text() == text:
        return
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o755)
    with os.fdopen(fd, "w") as file:
        file.write(text)
    os.rename(draft, target)
