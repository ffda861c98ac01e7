"""Where a run writes, and who it is: told by the platform through the environment, or chosen here where there is none."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from .lines import format_time, now_us
from .record import RECORD, Record, read_record

__all__ = ["Place", "find_place", "own_identity"]

OWNER = "TENURE_RUN_OWNER"  # which process writes which run: pid, start time, run directory
PARENT = "TENURE_RUN_PARENT"
_UNSAFE = str.maketrans({char: "-" for char in '/\\\0\n\r\t :*?"<>|'})
_LONGEST_CHAIN = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """`chain` holds the checkpoint directories of the runs that this one continues, newest first.

    `rank` is None for a run of one process; `before` is what the record said when this process came to it.
    """

    run_id: str
    directory: Path
    checkpoints: Path
    chain: tuple[Path, ...]
    platform: bool
    job_id: str | None
    attempt: int | None
    retry_of: str | None
    parent: str | None
    rank: int | None
    world_size: int | None
    before: Record


def find_place(name: str, *, directory: str | os.PathLike[str] | None = None, resume_from: str | None = None) -> Place:
    """The place of a run called `name`.

    On the platform: TENURE_RUN_DIR.  Elsewhere, or where another living process already writes that run (a study started by
    a study): a new directory below `directory`, $TENURE_HOME/runs or ./runs, with a unique name that sorts by time.
    `resume_from` (a run's id or directory) makes the run a continuation of that one.  Raises OSError, FileNotFoundError.
    """
    env = os.environ
    given = env.get("TENURE_RUN_DIR")
    nested = bool(given) and _is_owned(env.get(OWNER), os.path.abspath(given or ""))
    if given and not nested and directory is None:
        where = Path(given).absolute()
        record = read_record(where, metrics=False)
        rank = _number(env, "RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX")
        world = _number(env, "WORLD_SIZE", "SLURM_NTASKS")
        alone = rank is None or world == 1
        attempt = env.get("TENURE_ATTEMPT", "")
        return Place(
            run_id=record.run_id or where.name, directory=where,
            checkpoints=Path(env.get("TENURE_CHECKPOINT_DIR") or where / "checkpoints").absolute(),
            chain=_chain(where.parent, record.retry_of), platform=True, job_id=env.get("TENURE_JOB_ID") or record.job_id,
            attempt=int(attempt) if attempt.isdigit() else record.attempt, retry_of=record.retry_of, parent=record.parent,
            rank=None if alone else rank, world_size=None if alone else world, before=record,
        )  # fmt: skip
    root = _root(directory, Path(given).absolute().parent if given else None)
    where = _new_directory(root, name)
    retry_of: str | None = None
    chain: tuple[Path, ...] = ()
    if resume_from is not None:
        continued = _named_run(root, resume_from)
        retry_of, chain = continued.name, _chain(continued.parent, continued.name)
    return Place(
        run_id=where.name, directory=where, checkpoints=where / "checkpoints", chain=chain, platform=False, job_id=None,
        attempt=None, retry_of=retry_of, parent=env.get(PARENT) or None, rank=None, world_size=None, before=Record(),
    )  # fmt: skip


def own_identity(directory: Path) -> str:
    """This process (by pid and the kernel's start time: a pid alone is used again) and the run that it writes."""
    return f"{os.getpid()}:{_started(os.getpid())}:{directory}"


def _is_owned(identity: str | None, directory: str) -> bool:
    pid, _, rest = (identity or "").partition(":")
    started, _, run = rest.partition(":")
    if run != directory or not pid.isdigit() or int(pid) == os.getpid():  # of another run: a job that a study submitted
        return False
    return started != "" and _started(int(pid)) == started


def _started(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]


def _number(env: os._Environ[str], *names: str) -> int | None:
    for name in names:
        text = env.get(name, "")
        if text.isdigit():
            return int(text)
    return None


def _root(directory: str | os.PathLike[str] | None, sibling: Path | None) -> Path:
    if directory is not None:
        return Path(directory).absolute()
    home = os.environ.get("TENURE_HOME")
    return Path(home).expanduser().absolute() / "runs" if home else sibling or Path("runs").absolute()


def _new_directory(root: Path, name: str) -> Path:
    if not root.exists():
        root.mkdir(parents=True, exist_ok=True)
        ignore = root / ".gitignore"  # runs inside a working tree would make its fingerprint differ each time
        if not ignore.exists():
            ignore.write_text("*\n")
    shown = name.translate(_UNSAFE).strip(".-")
    while len(shown.encode()) > 80:  # a name in a file system is 255 bytes at most, and Chinese takes three a letter
        shown = shown[:-1]
    while True:
        stamp = format_time(now_us()).replace("-", "").replace(":", "").removesuffix("Z")
        where = root / f"{stamp}-{shown or 'run'}-{secrets.token_hex(2)}"
        try:
            where.mkdir()
        except FileExistsError:
            continue
        return where


def _named_run(root: Path, name: str) -> Path:
    for candidate in (Path(name), root / name):
        if (candidate / RECORD).is_file():
            return candidate.absolute()
    raise FileNotFoundError(f"there is no run {name!r}: neither a run directory of that name nor one in {root}")


def _chain(root: Path, run_id: str | None) -> tuple[Path, ...]:
    chain: list[Path] = []
    seen: set[str] = set()
    while run_id and run_id not in seen and len(seen) < _LONGEST_CHAIN and os.sep not in run_id:
        seen.add(run_id)
        chain.append(root / run_id / "checkpoints")
        try:
            run_id = read_record(root / run_id, metrics=False).retry_of
        except OSError:
            break
    return tuple(chain)
