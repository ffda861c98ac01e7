"""Whose process is it?  A run of this platform, or else a pod, a Slurm job, a container, a login or a service.

A job's process is known by its environment, or by that of an ancestor, as a program may start another with an empty
one.  Everybody else is known by the control group.  Parsing is pure; `Owners` and `lives` read /proc, and what has just
ended, or belongs to somebody who may not be looked at, is an unknown owner and never an error.
"""

from __future__ import annotations

import os
import pwd
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tenure.domain.ids import CardId, JobId

from .nvml import CardSample

__all__ = ["DEAD", "Attribution", "Holding", "Owner", "OwnerKind", "Owners", "attribute", "lives", "parse_cgroup", "parse_environ", "parse_stat"]  # fmt: skip

JOB_ID, RUN_DIR = "TENURE_JOB_ID", "TENURE_RUN_DIR"
DEAD = ("Z", "X")  # states of /proc/PID/stat: it has ended, and nobody has reaped it


class OwnerKind(StrEnum):
    JOB = "job"  # of a tenure platform: `run_dir` tells which
    POD = "pod"
    SLURM = "slurm"
    CONTAINER = "container"
    LOGIN = "login"  # a person's session
    SERVICE = "service"  # a systemd unit
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """`id` is the job's id, the pod's UID, Slurm's job id, the container's id, the user id or the unit, by kind.

    `details` holds what else the control group says (`container`, `step`, `session`, `unit`, `runtime`).
    """

    kind: OwnerKind
    id: str = ""
    run_dir: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    command: str = ""

    @property
    def job(self) -> JobId | None:
        return JobId(self.id) if self.kind is OwnerKind.JOB else None


# --- pure

_UID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_CONTAINER = r"[0-9a-f]{64}"
# From the most telling to the least: a pod's container is also a systemd unit, and the pod is what people know.
_PATHS: tuple[tuple[OwnerKind, re.Pattern[str]], ...] = (
    # cgroupfs: /kubepods/burstable/pod<uid>/<container>; systemd: …-pod<uid_>.slice/<runtime>-<container>.scope;
    # containerd's own form: …-pod<uid_>.slice:cri-containerd:<container>
    (
        OwnerKind.POD,
        re.compile(
            rf"kubepods.*?pod(?P<id>{_UID})(?:\.slice)?(?:[/:](?:(?P<runtime>[a-z-]+)[-:])?(?P<container>{_CONTAINER}))?"
        ),
    ),
    (
        OwnerKind.SLURM,
        re.compile(r"slurm(?:stepd)?[^/]*(?:/[^/]+)*?/job_(?P<id>\d+)(?:/step_(?P<step>[^/]+))?"),
    ),
    (OwnerKind.CONTAINER, re.compile(rf"/(?P<runtime>docker)[/-](?P<id>{_CONTAINER})")),
    (OwnerKind.CONTAINER, re.compile(rf"(?P<runtime>libpod|crio|cri-containerd)-(?P<id>{_CONTAINER})")),
    (
        OwnerKind.LOGIN,
        re.compile(
            r"user-(?P<id>\d+)\.slice(?:/session-(?P<session>[^/.]+)\.scope"
            r"|/user@\d+\.service(?:/[^/]+\.slice)*(?:/(?P<unit>[^/]+\.(?:scope|service)))?)?"
        ),
    ),
    (OwnerKind.SERVICE, re.compile(r"(?:system|machine)\.slice(?:/[^/]+\.slice)*/(?P<id>[^/]+\.(?:service|scope))")),
)
_RUNTIMES = {"libpod": "podman", "cri-containerd": "containerd", "cri-o": "crio"}


def parse_cgroup(text: str) -> Owner | None:
    """Who owns a process, by its `/proc/PID/cgroup`; None where no path says anything.

    Version 1 has a line per controller, and some may sit in the root: the most telling path of all lines counts.
    """
    paths = [line.split(":", 2)[2] for line in text.splitlines() if line.count(":") >= 2]
    for kind, pattern in _PATHS:
        for path in paths:
            match = pattern.search(path)
            if match is not None:
                found = {name: value for name, value in match.groupdict().items() if value}
                owner_id = found.pop("id").replace("_", "-") if kind is OwnerKind.POD else found.pop("id")
                if "runtime" in found:
                    found["runtime"] = _RUNTIMES.get(found["runtime"], found["runtime"])
                return Owner(kind=kind, id=owner_id, details=found)
    return None


def parse_environ(raw: bytes) -> tuple[str, str] | None:
    """(job id, run directory) from a `/proc/PID/environ`; None unless both are there."""
    values: dict[str, str] = {}
    for entry in raw.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name in (JOB_ID.encode(), RUN_DIR.encode()):
            values[name.decode()] = os.fsdecode(value)
    job, run_dir = values.get(JOB_ID), values.get(RUN_DIR)
    return (job, run_dir) if job and run_dir else None


def parse_stat(text: str) -> tuple[int, int, str]:
    """(parent, start time in ticks, command) from a `/proc/PID/stat`; the command may hold spaces and brackets."""
    head, _, rest = text.rpartition(")")
    fields = rest.split()
    return int(fields[1]), int(fields[19]), head.partition("(")[2]


# --- /proc


def lives(pid: int, proc: Path = Path("/proc")) -> bool:
    """Is there such a process?  One that is dead and not yet reaped holds nothing, and is not."""
    try:
        stat = (proc / str(pid) / "stat").read_bytes()  # its name may be any bytes
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0].decode() not in DEAD


class Owners:
    """Looks processes up, and remembers jobs' by pid *and* start time: a pid that is used again is another process.

    `roots` names processes that are known to stand above a job, such as its supervisor: the answer for a descendant
    whose own environment says nothing.  Not for several threads at once.
    """

    GENERATIONS = 64  # how far up to look

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._known: dict[int, tuple[int, Owner]] = {}

    def owner(self, pid: int, roots: Mapping[int, tuple[JobId, str]] | None = None) -> Owner:
        """Who owns `pid` now.  `roots` maps a pid to (job id, run directory)."""
        stat = self._stat(pid)
        if stat is None:
            self._known.pop(pid, None)
            return Owner(kind=OwnerKind.UNKNOWN)
        known = self._known.get(pid)
        if known is not None and known[0] == stat[1]:
            return known[1]
        owner = self._find(pid, stat, roots or {})
        if owner.kind is OwnerKind.JOB:  # anybody else may only be in the middle of its exec, and be a job's yet
            self._known[pid] = (stat[1], owner)
        return owner

    def keep_only(self, pids: Iterable[int]) -> None:
        """Forget everybody else."""
        wanted = set(pids)
        for pid in [pid for pid in self._known if pid not in wanted]:
            del self._known[pid]

    def _find(self, pid: int, stat: tuple[int, int, str], roots: Mapping[int, tuple[JobId, str]]) -> Owner:
        user, command = self._user(pid), stat[2]
        job = self._job(pid, stat[0], roots)
        if job is not None:
            return Owner(kind=OwnerKind.JOB, id=job[0], run_dir=job[1], user=user, command=command)
        owner = parse_cgroup(self._text(pid, "cgroup")) or Owner(kind=OwnerKind.UNKNOWN)
        return Owner(kind=owner.kind, id=owner.id, details=owner.details, user=user, command=command)

    def _job(self, pid: int, parent: int, roots: Mapping[int, tuple[JobId, str]]) -> tuple[str, str] | None:
        for _ in range(self.GENERATIONS):
            found = roots.get(pid) or parse_environ(self._bytes(pid, "environ"))
            if found is not None or parent <= 1:
                return found
            stat = self._stat(parent)
            if stat is None:
                return None
            pid, parent = parent, stat[0]
        return None

    def _stat(self, pid: int) -> tuple[int, int, str] | None:
        try:
            return parse_stat(self._text(pid, "stat"))
        except (ValueError, IndexError):
            return None  # gone

    def _user(self, pid: int) -> str:
        try:
            uid = (self._proc / str(pid)).stat().st_uid
        except OSError:
            return ""
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return str(uid)

    def _bytes(self, pid: int, name: str) -> bytes:
        try:
            return (self._proc / str(pid) / name).read_bytes()
        except OSError:  # gone, or not ours to look at
            return b""

    def _text(self, pid: int, name: str) -> str:
        return self._bytes(pid, name).decode(errors="replace")


# --- memory, by owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one process holds of one card.  `memory` is in bytes; None where the driver does not tell."""

    card: CardId
    pid: int
    memory: int | None
    owner: Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Measured memory by owner.  A job that is not in `by_job` holds nothing that was seen."""

    holdings: tuple[Holding, ...] = ()
    by_job: Mapping[JobId, Mapping[CardId, int]] = field(default_factory=dict)
    strangers: tuple[Holding, ...] = ()  # processes of nobody's job, or of another platform's

    def of_job(self, job: JobId) -> int:
        """Bytes over all cards."""
        return sum(self.by_job.get(job, {}).values())


def attribute(
    samples: Sequence[CardSample],
    *,
    owners: Owners,
    runs_dir: Path | None = None,
    roots: Mapping[int, tuple[JobId, str]] | None = None,
) -> Attribution:
    """Who holds the memory that was sampled.

    With `runs_dir` only runs below it are this platform's jobs: two platforms on one machine both have a job 1.
    """
    ours = _below(runs_dir)
    holdings: list[Holding] = []
    by_job: dict[JobId, dict[CardId, int]] = defaultdict(lambda: defaultdict(int))
    strangers: list[Holding] = []
    for sample in samples:
        for process in sample.processes or ():
            owner = owners.owner(process.pid, roots)
            holding = Holding(card=sample.card, pid=process.pid, memory=process.memory, owner=owner)
            holdings.append(holding)
            if owner.job is not None and ours(owner.run_dir):
                by_job[owner.job][sample.card] += process.memory or 0
            else:
                strangers.append(holding)
    owners.keep_only(holding.pid for holding in holdings)
    return Attribution(
        holdings=tuple(holdings),
        by_job={job: dict(cards) for job, cards in by_job.items()},
        strangers=tuple(strangers),
    )


def _below(runs_dir: Path | None) -> Callable[[str], bool]:
    """Is a run directory ours?  By its parent as written, or where a link was followed on the way, by its real one."""
    if runs_dir is None:
        return lambda run_dir: True
    parents = {str(runs_dir), os.path.realpath(runs_dir)}
    return lambda run_dir: os.path.dirname(run_dir) in parents or os.path.dirname(os.path.realpath(run_dir)) in parents
