"""Where the output of a process goes: the run directory, or the file that the job asked for, by Slurm's patterns."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Any

from .layout import log_name
from .srun import filled

__all__ = ["Outputs", "expand"]


def expand(pattern: str, *, job: Mapping[str, Any], job_id: str, rank: int) -> str:
    """Slurm's filename pattern: %x name, %j job id, %A array's id, %a index, %t rank, %N host, %u user, %% percent.

    See `srun.filled`, which stands there because srun imports nothing of ours.
    """
    base, _, index = job_id.partition("_")
    values = {
        "x": str(job.get("name", "")).replace("/", "_"), "j": job_id, "J": job_id, "A": base, "a": index or "0", "t": str(rank), "n": "0",
        "N": socket.gethostname().split(".")[0], "u": str(job.get("owner") or os.environ.get("USER", "")), "%": "%", "s": "batch",
    }  # fmt: skip
    return filled(pattern, values)


class Outputs:
    """The files of one attempt.  A file outside the run directory gets a link inside it, so that readers look in one place."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._run_dir: str = spec["run_dir"]
        self._job: Mapping[str, Any] = spec["job"]
        self._job_id: str = spec["job_id"]
        self._truncated: set[str] = set()

    def _asked(self, stream: str, rank: int) -> str | None:
        pattern = self._job.get("output" if stream == "stdout" else "error")
        if stream == "stderr" and not pattern and self._job.get("sbatch"):
            pattern = self._job.get("output")  # Slurm: one file for both unless --error says otherwise
        if not pattern:
            return None
        path = expand(str(pattern), job=self._job, job_id=self._job_id, rank=rank)
        return os.path.normpath(os.path.join(self._job.get("workdir") or "/", path))

    def path(self, stream: str, rank: int) -> str:
        """The file to append to.  Made ready first: links set, truncated once where the job did not ask to append.

        Raises OSError, naming the file.
        """
        inside = os.path.join(self._run_dir, log_name(stream, rank))
        asked = self._asked(stream, rank)
        if asked is None:
            return inside
        if asked not in self._truncated and asked != "/dev/null":
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
            os.close(os.open(asked, flags if self._job.get("append") else flags | os.O_TRUNC, 0o666))
            self._truncated.add(asked)
        if stream == "stdout" or asked != self._asked("stdout", rank):
            with contextlib.suppress(FileExistsError):
                os.symlink(asked, inside)
        return asked
