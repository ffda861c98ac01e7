"""The one job model: four ways in (`run`, `submit`, a Kubernetes Job, an #SBATCH script), one value out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .ids import Instant
from .policy import Toleration
from .workload import NodeSelectorTerm

__all__ = ["ArraySpec", "Dependency", "DependencyKind", "GangPolicy", "JobSpec", "LogSpec", "StopSignal"]


class DependencyKind(StrEnum):
    """Slurm's words: after it started, ended anyhow, completed, did not complete."""

    AFTER = "after"
    AFTER_ANY = "afterany"
    AFTER_OK = "afterok"
    AFTER_NOT_OK = "afternotok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """`job` may be an array's base id: then every task counts."""

    job: str
    kind: DependencyKind = DependencyKind.AFTER_OK


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySpec:
    """The indices of an array, and how many may hold quota at once (None = no bound)."""

    indices: tuple[int, ...]
    limit: int | None = None


class GangPolicy(StrEnum):
    """What the death of one process means for the others of the attempt."""

    ALL = "all"  # a gang: when one dies the rest are ended, and the outcome names the rank
    EACH = "each"  # a work list (batch/v1 Job): each index on its own, retried up to `backoff_limit`


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpec:
    """Where output goes besides the run directory.  Patterns know %x %j %A %a %t %N; `append` is Slurm's open-mode."""

    output: str | None = None
    error: str | None = None
    append: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StopSignal:
    """`--signal=[B:]SIG[@SECONDS]`: sent before the time limit; `batch_only` spares the srun tasks."""

    signal: str = "TERM"
    before_s: float = 60.0
    batch_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What somebody submitted, complete and immutable.

    Exactly one of `argv` and `script` is set; a script runs as text, by its own `#!` line.  Amounts are **per process**:
    `shares` of one card, `gpu_memory` and `memory` in bytes, `cpus` in milli-CPUs.  `requests` holds any further
    resource by name.  Times are seconds; instants are microseconds since the epoch.
    """

    name: str
    argv: tuple[str, ...] = ()
    script: str | None = None
    script_args: tuple[str, ...] = ()
    workdir: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    env_digest: str | None = None  # the submitter's environment, kept once per content; `env` lies over it
    project: str = "default"
    namespace: str = "default"
    owner: str = ""
    queue: str | None = None  # local queue; None = the namespace's `default`
    priority_class: str | None = None

    shares: int = 0
    whole: bool = False
    gpu_memory: int = 0
    cpus: int = 0
    memory: int = 0
    requests: Mapping[str, int] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity_terms: tuple[NodeSelectorTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    processes: int = 1  # gang size, or a Job's parallelism
    min_processes: int | None = None  # an elastic gang's minimum
    gang: bool = False  # sets RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
    policy: GangPolicy = GangPolicy.ALL
    completions: int | None = None  # of a Job: how many successes end it; None = `processes`
    indexed: bool = False  # of a Job: sets JOB_COMPLETION_INDEX
    backoff_limit: int = 0  # retries of failed processes (policy `each`) or of the whole job (otherwise)
    tasks: int = 1  # of an #SBATCH script: what `srun` starts by default

    array: ArraySpec | None = None
    array_index: int | None = None
    after: tuple[Dependency, ...] = ()
    begin_at: Instant | None = None
    suspended: bool = False
    time_limit_s: float | None = None
    active_deadline_s: float | None = None  # counts from the first start, across attempts
    grace_s: float = 30.0  # between the request to stop and the kill
    stop_signal: StopSignal | None = None
    requeue: bool = True  # an interrupted attempt is followed by another
    logs: LogSpec = LogSpec()
    sbatch: bool = False  # sets SLURM_* and puts `srun` on the PATH
    window: bool = False  # it runs inside a window of its own: the whole card is claimed while it runs
    including_resident: bool = False  # residents have to leave that card, too
    labels: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what was read and has no effect here, named
    fingerprint: Mapping[str, object] = field(default_factory=dict)  # of the working tree, at submit
