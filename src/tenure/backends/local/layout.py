"""The names of the supervisor's files in a run directory, and of the daemon's sockets in its state directory."""

from __future__ import annotations

__all__ = [
    "CONTROL_SOCKET", "FORKSERVER_LOG", "JOURNAL", "LOCK", "NEWS_SOCKET", "REQUESTS", "SCRIPT", "SHIM_DIR", "SPEC",
    "log_name",
]  # fmt: skip

SPEC = "spec.json"  # what to run (0600: it holds the whole environment)
LOCK = "lock"  # held by the supervisor for as long as it lives; its blocks are the reserve for the last lines on a full disk
JOURNAL = "supervisor.jsonl"  # every durable fact, one line each
REQUESTS = "requests.jsonl"  # what the daemon asked for: stops and shrinks, one line each
CONTROL_SOCKET = "control"  # datagrams here only say "look at the requests"
SCRIPT = "script"  # a script job's text (0700)

NEWS_SOCKET = "news"  # in the state directory: supervisors tell the daemon
FORKSERVER_LOG = "forkserver.log"
SHIM_DIR = "bin"  # programs put in front of the PATH of #SBATCH jobs


def log_name(stream: str, rank: int) -> str:
    """`stdout.log` for rank 0 and `stdout.K.log` for rank K."""
    return f"{stream}.log" if rank == 0 else f"{stream}.{rank}.log"
