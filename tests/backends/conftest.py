"""A local backend in a private directory; every process that a test leaves behind is ended after it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.backends.local import processes

from .local_rig import LocalRig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[LocalRig]:
    rig = LocalRig(tmp_path)
    try:
        yield rig
    finally:
        rig.close()
        for pid in processes.everyone():
            where = processes.environ_value(pid, "TENURE_RUN_DIR")
            if where is not None and where.startswith(str(tmp_path)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
