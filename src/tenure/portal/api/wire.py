"""The shapes on the wire, for the OpenAPI document and for nothing inside: rooms pass values, not these.

Answers are written by `control.views` and are not validated again on their way out; the tests hold them against these
models, so that the document stays honest.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Array", "ArraySize", "ArrayTask", "Attempt", "Blocker", "Cancel", "Card", "ChangeToken", "CheckPolicy", "CheckToken", "Checked", "ClaimWindow", "Counterfactual", "CreatedToken", "Event", "Evicted", "ExpectedStart", "HeldBy", "Holder", "Holding", "JobObject", "JobPage", "JobShown", "JobSubmission", "Model", "ModelsSeen", "NewToken", "Note", "PolicyFile", "PolicyView", "Problem", "Queue", "QueueResource", "QueuedJob", "Release", "RenewWindow", "Retry", "RunPage", "RunRecord", "RunRow", "Series", "Several", "Sleep", "StopDaemon", "SubmittedFile", "TokenLimits", "TokenRow", "TokenUse", "Tried", "TriedQueue", "TriedSide", "TryPolicy", "Wake", "Why"]  # fmt: skip

State = Literal["queued", "admitted", "running", "evicting", "cancelling", "ended"]
Outcome = Literal["completed", "failed", "cancelled", "interrupted"]
Amount = Annotated[str | int, Field(examples=["8Gi", 8589934592])]


class Loose(BaseModel):
    """Fields may be added; a reader ignores what it does not know."""

    model_config = ConfigDict(extra="allow")


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SubmittedFile(Strict):
    name: str = Field(examples=["train.sbatch"])
    text: str


class JobSubmission(Strict):
    """What to run, once, in one of three ways: `argv`, `script` or `file`; the other fields override the file's."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "argv": ["python", "train.py"],
                    "name": "digits",
                    "priority": "training",
                    "shares": 1,
                    "gpu_memory": "8Gi",
                    "time": "2h",
                },
                {"script": "#!/bin/sh\nnvidia-smi\n", "whole": True, "gpu_memory": "16Gi"},
                {"file": {"name": "job.yaml", "text": "apiVersion: batch/v1\nkind: Job\n"}, "queue": "default"},
            ],
            "oneOf": [{"required": ["argv"]}, {"required": ["script"]}, {"required": ["file"]}],
        },
    )

    argv: list[str] = Field(default=[], description="A command and its arguments; no shell reads it.")
    script: str = Field(default="", description="A script's text, run by its own `#!` line.")
    script_args: list[str] = []
    file: SubmittedFile | None = Field(default=None, description="A Kubernetes Job (YAML) or an #SBATCH script.")
    name: str = ""
    project: str = "default"
    namespace: str = "default"
    queue: str | None = Field(default=None, description="A local queue of the namespace; its `default` otherwise.")
    priority: str | None = Field(default=None, description="A priority class.", examples=["training"])
    shares: int = Field(default=0, ge=0, description="Shares of one card, per process.")
    whole: bool = Field(default=False, description="All shares of one card, per process.")
    gpu_memory: Amount | None = Field(default=None, description="Card memory per process; required with shares.")
    cpus: str | int | None = Field(default=None, examples=["2", "500m"])
    memory: Amount | None = None
    requests: dict[str, str | int] = Field(default={}, description="Any further resource, by name.")
    time: str | int | None = Field(
        default=None, description="`2h`, `HH:MM:SS`; a bare number is minutes.", examples=["2h"]
    )
    gang: str | None = Field(default=None, description="N or N:MIN processes, all or none.", examples=["4", "4:2"])
    array: str | None = Field(default=None, examples=["1-10%3"])
    after: list[str] | str | None = Field(default=None, examples=[["37", "afterany:38"]])
    begin: str | None = Field(default=None, examples=["now+1hour", "2026-11-29T21:30:00Z"])
    env: dict[str, str] = {}
    environment: dict[str, str] | None = Field(default=None, description="The submitter's whole environment.")
    workdir: str | None = Field(default=None, description="Where it runs; wins over a file's own.")
    cwd: str | None = Field(
        default=None, description="Where the submitter stood: the default, and the base of a file's relative directory."
    )
    grace: str | int | None = Field(default=None, description="From the request to stop to the kill.", examples=["30s"])
    requeue: bool = True
    backoff_limit: int = Field(default=0, ge=0)
    output: str | None = None
    error: str | None = None
    hold: bool = False
    window: bool = Field(
        default=False, description="Run inside a window of its own: the whole card is claimed meanwhile."
    )
    labels: dict[str, str] = {}


class JobObject(Loose):
    """A job as `ps -o json` prints it."""

    id: str = Field(examples=["37", "37_4"])
    name: str
    state: State
    reason: str = Field(description="Why it waits, or how it ended: a CamelCase code.")
    outcome: Outcome | None
    exit_code: int | None
    queue: str | None
    priority_class: str | None
    project: str
    submitted_at: datetime
    admitted_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    attempts: int
    run_id: str | None
    message: str
    signal: int | None
    cluster_queue: str | None
    priority: int
    namespace: str
    owner: str
    processes: int
    shares: int = Field(description="Of all processes together.")
    whole: bool
    gpu_memory: int = Field(description="Bytes, of all processes together.")
    array_id: str | None
    array_index: int | None
    retry_of: str | None = Field(description="The job that this one repeats.")
    revision: int = Field(description="Grows with every change.")
    notes: list[str] = Field(
        default=[], description="What was read and has no effect here, and what a bare time meant."
    )


class ArrayTask(Loose):
    id: str
    state: State
    outcome: Outcome | None


class ArraySize(Loose):
    size: int
    limit: int | None = None


class Array(Loose):
    """The answer to a submission that named an array: one job a task."""

    id: str
    array: ArraySize
    tasks: list[str] = Field(examples=[["37_1", "37_2"]])


class Several(Loose):
    """The answer where one file held several jobs."""

    jobs: list[JobObject | Array]


class JobPage(Loose):
    items: list[JobObject]
    next: str | None = Field(description="The `cursor` of the next page; null on the last.")


class Evicted(Loose):
    reason: str
    message: str
    by: str | None = Field(description="The job that it made room for, where there is one.")
    at: datetime | None


class Attempt(Loose):
    number: int
    run_id: str
    state: str
    outcome: Outcome | None
    exit_code: int | None
    signal: int | None
    started_at: datetime | None
    ended_at: datetime | None
    evicted: Evicted | None
    retry_of: str | None


class JobShown(Loose):
    """A job as `show` prints it: the object with its spec, and its attempts in place of their number.

    An array answers with `array` and `tasks` in place of `spec` and `attempts`.
    """

    id: str
    name: str
    state: State
    spec: dict[str, Any] | None = None
    attempts: list[Attempt] | None = None
    array: dict[str, Any] | None = None
    tasks: list[ArrayTask] | None = None


class HeldBy(Loose):
    id: str
    name: str
    priority_class: str | None
    preemptible: bool
    because: str


class Blocker(Loose):
    kind: str
    resource: str | None
    flavor: str | None
    asked: int | None
    free: int | None
    held_by: list[HeldBy]


class ExpectedStart(Loose):
    p50: datetime
    p90: datetime
    basis: str


class Counterfactual(Loose):
    change: str
    effect: str


class Phase(Loose):
    """A span of a job's life; `to` is null for the present one."""

    phase: str = Field(examples=["waited"])
    reason: str
    seconds: float
    taken_by: str | None
    rule: str | None
    lost_s: float | None


class Why(Loose):
    """Why a job is where it is: who holds what it asks for, and what would change it."""

    id: str
    state: State
    reason: str
    message: str
    position: int | None
    blockers: list[Blocker]
    expected_start: ExpectedStart | None
    expected_start_reason: str | None
    counterfactuals: list[Counterfactual]
    phases: list[Phase]
    history: list[dict[str, Any]]


class Event(Loose):
    """One line of the diary.  Over SSE `id:` is its id and `event:` its kind."""

    id: int
    at: datetime
    kind: str = Field(examples=["JobPreempted"])
    job_id: str | None
    run_id: str | None
    message: str
    changes: dict[str, Any] = Field(description="The fields of the job or attempt that it set.")
    data: dict[str, Any]


class Holder(Loose):
    id: str
    name: str
    owner: str
    project: str
    priority_class: str | None
    state: str
    since: datetime | None
    shares: int
    memory_declared: int
    memory_measured: int | None


class Cordon(Loose):
    """Why a card is out of the pool."""

    at: datetime
    by: str = Field(description="Who took it out; `driver` where it failed.")
    reason: str
    move: bool = Field(description="What ran there was asked to leave.")
    failed: bool


class Card(Loose):
    """A card: its shares, its memory as declared by jobs and as measured (null: not measured), and its holders."""

    id: str = Field(examples=["GPU-7c3a…", "declared-0"])
    name: str
    flavor: str
    source: Literal["measured", "declared", "none"]
    shares: int
    shares_free: int
    memory: int = Field(description="Bytes.")
    memory_free: int
    memory_declared: int
    memory_measured: int | None
    cordoned: bool
    cordon: Cordon | None = Field(description="null: it is in the pool.")
    window: dict[str, Any] | None = Field(description="The window that holds it, or for which it is being cleared.")
    windows: list[dict[str, Any]] = Field(description="Every claim of it that has not ended, in the order of their turns.")
    holders: list[Holder]


class Holding(Loose):
    """That a job held part of a card for a time."""

    card: str
    job_id: str
    run_id: str
    name: str
    priority_class: str | None
    shares: int
    memory: int
    from_: datetime = Field(alias="from")
    to: datetime | None = Field(description="null: still there.")
    outcome: Outcome | None
    ended_by: str | None = Field(description="The job that it was stopped for.")


class QueueResource(Loose):
    flavor: str
    resource: str
    nominal: int
    used: int
    borrowed: int
    lent: int
    borrowing_limit: int | None


class QueuedJob(Loose):
    id: str
    position: int | None = Field(description="From 0; null for one that is kept outside the line.")
    reason: str
    message: str


class Queue(Loose):
    """A cluster queue.  Amounts are in base units, `cpu` in thousandths."""

    name: str
    cohort: str | None
    strategy: str
    stop_policy: str
    local_queues: list[str]
    resources: list[QueueResource]
    pending: int
    jobs: list[QueuedJob] = Field(description="In order; of a very long line, its head.")


class RunRow(Loose):
    run_id: str
    name: str
    job_id: str | None
    project: str
    outcome: Outcome | None
    opened_at: datetime | None
    closed_at: datetime | None
    retry_of: str | None
    results: dict[str, Any]
    config: dict[str, Any]


class RunPage(Loose):
    items: list[RunRow]
    next: str | None


class RunRecord(Loose):
    """The record that an attempt wrote of itself."""

    run_id: str
    job_id: str | None
    state: Literal["open", "closed"]
    outcome: Outcome | None
    config: dict[str, Any]
    results: dict[str, Any]
    code: dict[str, Any]
    environment: dict[str, Any]


class PolicyView(Loose):
    yaml: str
    files: list[str]
    problems: list[dict[str, Any]]


class Checked(Loose):
    ok: bool
    problems: list[dict[str, Any]]


class Series(Loose):
    """One metric: `x` is the step where the run gave one, the line's number otherwise.  Thinned to 2000 points at most."""

    x: list[float]
    y: list[float | None]


class Cancel(Strict):
    reason: str = ""
    signal: str | None = Field(default=None, examples=["INT"])
    grace_s: float | None = Field(default=None, ge=0)


class Release(Strict):
    at: str | None = Field(default=None, description="Not before this time; now otherwise.", examples=["now+1hour"])


class Drain(Strict):
    move: bool = Field(default=False, description="Ask what runs there to leave; it is queued again.")


class Window(Loose):
    """A claim of a whole card."""

    id: str = Field(examples=["w3"])
    card: str
    owner: str
    state: Literal["scheduled", "waiting", "active", "ended"]
    reason: str = Field(description="Why it ended: Lapsed, Released, JobEnded, OwnerGone, CardGone.")
    message: str = Field(description="What it waits for, what it holds, or how it ended.")
    job_id: str | None = Field(description="The job that it was claimed for.")
    length_s: float = Field(description="How long it lasts from its opening.")
    including_resident: bool
    lease_s: float | None = Field(description="It ends when it was not renewed for this long.")
    claimed_at: datetime
    begin_at: datetime | None
    opened_at: datetime | None
    ends_at: datetime | None
    ended_at: datetime | None


class ClaimWindow(Strict):
    length: str | int | None = Field(
        default=None, alias="for", description="How long; two hours otherwise.", examples=["2h"]
    )
    card: str | None = Field(default=None, description="The one that is free soonest, otherwise.")
    begin: str | None = Field(default=None, examples=["now+1hour", "2026-11-29T21:30:00Z"])
    including_resident: bool = Field(default=False, description="Resident work has to leave, too.")
    wait: bool = Field(default=False, description="Take a place in line where it is not free: else 409.")
    lease_s: float | None = Field(default=None, description="Ends when it is not renewed for so many seconds.")


class RenewWindow(Strict):
    keep: bool = Field(default=False, description="From now on it lasts without being renewed.")


class Note(Strict):
    message: str = Field(min_length=1, max_length=1000)


class Retry(Strict):
    only_failed: bool = Field(default=False, description="Of an array: the tasks that did not complete.")


class StopDaemon(Strict):
    keep_jobs: bool = Field(default=False, description="Supervisors and their jobs go on.")


class PolicyFile(Strict):
    name: str
    text: str


class CheckPolicy(Strict):
    files: list[PolicyFile]


class TryPolicy(Strict):
    files: list[PolicyFile]
    since_s: float = Field(default=7 * 86_400, gt=0, le=366 * 86_400, description="how far back the replay begins")


class TriedQueue(Loose):
    """Of one cluster queue.  Times in seconds; `use` in share-seconds and GiB-seconds, and as a part of nominal."""

    jobs: int
    started: int
    wait_p50_s: float | None
    wait_p90_s: float | None
    wait_max_s: float | None
    preempted: int
    preempting: int
    use: dict[str, float | None]
    unmet: dict[str, float]


class TriedSide(Loose):
    queues: dict[str, TriedQueue]
    total: TriedQueue
    seconds: float
    admissions: int
    cycles: int


class Tried(Loose):
    """Two replays of the same jobs.  `notes`: what could not be played as it happened."""

    source: str
    since: str | None
    until: str | None
    jobs: int
    resume: str
    notes: list[str]
    fidelity: dict[str, float] | None
    before: TriedSide
    after: TriedSide


class Model(Loose):
    """`port` is said only of a model that is ready; `blocked_by` names the models that hold what it waits for.

    `window`: it cannot wake before the end of that one.
    """

    name: str
    state: Literal["asleep", "queued", "starting", "ready", "draining", "failed"]
    job_id: str | None
    run_id: str | None
    reason: str
    message: str
    in_flight: int
    held: int
    wakes: int
    last_inference_at: str | None
    sleeps_at: str | None
    aliases: list[str]
    adapters: list[str]
    resident: bool
    inference_paths: list[str]
    stop_timeout_s: float
    port: int | None
    traceparent: str | None
    blocked_by: list[str]
    placeable: bool
    retry_after_s: float
    window: dict[str, Any] | None
    last_wake: dict[str, Any]


class ModelsSeen(Loose):
    version: int
    models: list[Model]


class Wake(Strict):
    cause: str = Field(default="asked to", max_length=300)
    by: str = Field(default="", max_length=200, description="On whose behalf; the caller without one.")
    insist: bool = Field(default=True, description="Also within the backoff after a failure.")


class Sleep(Strict):
    cause: str = Field(default="asked to", max_length=300)
    by: str = Field(default="", max_length=200)


_Limit = Annotated[int | None, Field(ge=1, le=10**12)]
_Scope = Literal["jobs", "models"]


class TokenLimits(Strict):
    """What a token may do.  null: no limit."""

    scopes: list[_Scope] = Field(
        default=["jobs", "models"], min_length=1, description="`jobs`: this API and the pages; `models`: the gateway."
    )
    models: list[str] | None = Field(
        default=None, min_length=1, description="Names, aliases or adapters; null: all.", examples=[["assistant"]]
    )
    requests_per_minute: _Limit = None
    tokens_per_minute: _Limit = Field(default=None, description="Model tokens: prompts and answers together.")
    tokens_per_day: _Limit = Field(default=None, description="The budget of a day in UTC.")
    expires: str | None = Field(
        default=None, description="A time from now, or RFC 3339.", examples=["30d", "2026-12-31T00:00:00Z"]
    )


class NewToken(TokenLimits):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$", examples=["ci"])
    role: Literal["operator", "user"] = "user"


class ChangeToken(TokenLimits):
    """Only what is said changes; null takes a limit away."""


class TokenUse(Loose):
    """What the gateway answered to it, or is answering."""

    requests_last_minute: int
    tokens_last_minute: int
    requests_today: int
    tokens_today: int
    renews_at: datetime = Field(description="When the day ends.")


class TokenRow(Loose):
    name: str
    role: Literal["operator", "user"]
    scopes: list[_Scope]
    models: list[str] | None
    requests_per_minute: int | None
    tokens_per_minute: int | None
    tokens_per_day: int | None
    created_at: datetime | None
    expires_at: datetime | None
    expired: bool
    use: TokenUse
    notes: list[str] = []


class CreatedToken(TokenRow):
    token: str = Field(description="The secret: said this once.")


class CheckToken(Strict):
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Problem(Loose):
    """RFC 9457.  `code` is stable and for machines; `detail` says what, why and what would work."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:tenure:problem:NotFound",
                    "title": "Not Found",
                    "status": 404,
                    "detail": "there is no job 99",
                    "code": "NotFound",
                }
            ]
        },
    )

    type: str
    title: str
    status: int
    detail: str
    code: str
    field: str | None = Field(default=None, description="The part of the request that is wrong, where it is one.")
    problems: list[dict[str, Any]] | None = Field(default=None, description="All of them, where there may be several.")
