"""Jobs on the wire: what is submitted, what is answered, and why one waits."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import ConfigDict, Field

from .base import Amount, Loose, Outcome, State, Strict

__all__ = [
    "Array",
    "ArraySize",
    "ArrayTask",
    "Attempt",
    "Blocker",
    "Cancel",
    "Counterfactual",
    "Evicted",
    "ExpectedStart",
    "HeldBy",
    "JobObject",
    "JobPage",
    "JobShown",
    "JobSubmission",
    "Note",
    "Phase",
    "Release",
    "Retry",
    "Several",
    "SubmittedFile",
    "Why",
]


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
    script_args: list[str] = Field(default=[])
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
    env: dict[str, str] = Field(default={})
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
    including_resident: bool = Field(default=False, description="With `window`: resident work has to leave, too.")
    labels: dict[str, str] = Field(default={})


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


class Cancel(Strict):
    reason: str = ""
    signal: str | None = Field(default=None, examples=["INT"])
    grace_s: float | None = Field(default=None, ge=0)


class Release(Strict):
    at: str | None = Field(default=None, description="Not before this time; now otherwise.", examples=["now+1hour"])


class Note(Strict):
    message: str = Field(min_length=1, max_length=1000)


class Retry(Strict):
    only_failed: bool = Field(default=False, description="Of an array: the tasks that did not complete.")
