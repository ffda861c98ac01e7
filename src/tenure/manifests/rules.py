"""What every job must satisfy, whichever way it came in.

`check_spec` is asked once, at submit.  Everything it refuses could never work, or would surprise later.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from tenure.domain.amounts import CPU, GPU, GPU_MEMORY, MAX_AMOUNT, MEMORY
from tenure.domain.errors import InvalidRequest
from tenure.domain.job import GangPolicy, JobSpec

from .array import MAX_TASKS

__all__ = ["MAX_ENV_STRING", "check_environment", "check_spec"]

MAX_ENV_STRING = 131_071
"""Bytes of one argument or one NAME=VALUE that Linux hands to a program (MAX_ARG_STRLEN without its NUL)."""

MAX_SCRIPT = 4 * 2**20
MAX_PROCESSES = 10_000
MAX_NAME = 1_000
MAX_PATH = 4_095
"""Bytes of a path that Linux takes (PATH_MAX without its NUL)."""

MAX_GRACE = 100 * 366 * 86_400.0
_FIELDS = {GPU: "shares", GPU_MEMORY: "gpu_memory", CPU: "cpus", MEMORY: "memory"}
_SIGNALS = {name.removeprefix("SIG") for name in signal.Signals.__members__} | {str(n) for n in range(1, signal.NSIG)}


def check_spec(spec: JobSpec) -> None:
    """Raise InvalidRequest (`field` names the part, the text says what would work) if the job can never run."""
    for rule in (_command, _texts, _card, _amounts, _gang, _array, _times, _environment):
        for field, message in rule(spec):
            raise InvalidRequest(message, field=field)


def check_environment(variables: Mapping[str, str]) -> None:
    """Raise InvalidRequest if no program could be given these variables, which came from the submitter's shell."""
    for field, message in _variables("environment", variables):
        raise InvalidRequest(message, field=field)


Found = Iterator[tuple[str, str]]


def _command(spec: JobSpec) -> Found:
    if spec.script is not None and spec.argv:
        yield "argv", "a job has a command or a script, not both; leave one out"
    if spec.script is None and not spec.argv:
        yield "argv", "there is nothing to run; add a command after --, or name a script"
    if spec.argv and not spec.argv[0]:
        yield "argv[0]", "the program's name is empty; write the program first, then its arguments"
    if spec.script is not None:
        if not spec.script.startswith("#!"):
            yield "script", "the script has no first line that says what runs it; begin it with #!/bin/bash"
        if spec.script.partition("\n")[0].endswith("\r"):
            yield "script", "the lines end as on DOS, and no interpreter is found that way; convert it with dos2unix"
        if len(spec.script) > MAX_SCRIPT:
            yield "script", f"the script has {len(spec.script)} characters; at most {MAX_SCRIPT}"
    for field, words in (("argv", spec.argv), ("script_args", spec.script_args)):
        for i, word in enumerate(words):
            if (size := _size(word)) > MAX_ENV_STRING:
                yield f"{field}[{i}]", _too_long("the argument", size)


def _texts(spec: JobSpec) -> Found:
    """NUL ends a string for the kernel and both databases; any other character, control characters too, is allowed."""
    if not spec.name:
        yield "name", "the name is empty; leave it out, or write one"
    for field in ("name", "project", "namespace"):
        if (length := len(getattr(spec, field))) > MAX_NAME:
            yield field, f"the {field} has {length} characters; at most {MAX_NAME}"
    for field, text in _strings(spec):
        if "\0" in text:
            yield field, "contains a NUL character, which no program can be given; remove it"
        if not _is_text(text):
            yield field, _NO_TEXT
    for field, path in (("workdir", spec.workdir), ("logs.output", spec.logs.output), ("logs.error", spec.logs.error)):
        if path is not None and (size := _size(path)) > MAX_PATH:
            yield field, f"the path has {size} bytes and Linux takes at most {MAX_PATH}"
    for field in ("project", "namespace"):
        if not getattr(spec, field):
            yield field, f"the {field} is empty; leave it out for `default`"
    for field in ("queue", "priority_class"):
        if getattr(spec, field) == "":
            yield field, "is empty; leave it out, or name one"


def _strings(spec: JobSpec) -> Iterator[tuple[str, str]]:
    for field in ("name", "workdir", "project", "namespace", "owner", "queue", "priority_class", "script"):
        value = getattr(spec, field)
        if isinstance(value, str):
            yield field, value
    for field in ("argv", "script_args"):
        for i, word in enumerate(getattr(spec, field)):
            yield f"{field}[{i}]", word
    for field, value in (("logs.output", spec.logs.output), ("logs.error", spec.logs.error)):
        if value is not None:
            yield field, value
    for key, value in spec.labels.items():
        yield f"labels[{key!r}]", key + value


def _card(spec: JobSpec) -> Found:
    """A job on a card says how much of its memory it takes: that is what keeps others from being driven out of it."""
    if (spec.shares > 0 or spec.whole) and spec.gpu_memory == 0:
        yield (
            "gpu_memory",
            f"the job asks for a card and does not say how much of its memory it needs; add it: --gpu-memory 8Gi{_where(spec)}",
        )
    if spec.gpu_memory > 0 and spec.shares == 0 and not spec.whole:
        yield "shares", "the job asks for card memory and for no share of a card; add it: --shares 1"


def _where(spec: JobSpec) -> str:
    """Where else the amount may stand, for a job that came in a file."""
    if spec.sbatch:
        return " (or in the script: #TENURE --gpu-memory 8Gi)"
    if spec.policy is GangPolicy.EACH:
        return " (or under the container's resources.limits: tenure.dev/gpu-memory: 8Gi)"
    return ""


def _amounts(spec: JobSpec) -> Found:
    named = [(f, getattr(spec, f)) for f in ("shares", "gpu_memory", "cpus", "memory", "backoff_limit")]
    named += [(f"requests[{k!r}]", v) for k, v in spec.requests.items()]
    for resource in spec.requests:
        if resource in _FIELDS:  # two places for one amount: what is counted and what is placed would part
            flag = _FIELDS[resource]
            yield f"requests[{resource!r}]", f"has a field of its own: write {flag} (--{flag.replace('_', '-')})"
    for field, value in named:
        if value < 0:
            yield field, f"{value} is negative; at least 0"
        if value > MAX_AMOUNT:
            yield field, f"{value} is out of range; at most {MAX_AMOUNT}"
    for field in ("tasks", "processes"):
        if getattr(spec, field) < 1:
            yield field, f"{getattr(spec, field)} starts nothing; at least 1"
    if spec.processes > MAX_PROCESSES:
        yield "processes", f"{spec.processes} processes are too many for one machine; at most {MAX_PROCESSES}"
    if spec.tasks > MAX_PROCESSES:
        yield "tasks", f"{spec.tasks} tasks are too many for one machine; at most {MAX_PROCESSES}"


def _gang(spec: JobSpec) -> Found:
    if spec.min_processes is not None:
        if spec.min_processes < 1:
            yield "min_processes", f"{spec.min_processes} processes are none; the minimum is at least 1"
        if spec.min_processes > spec.processes:
            yield (
                "min_processes",
                f"the minimum {spec.min_processes} is more than the gang's size {spec.processes}; write --gang N:MIN with MIN <= N",
            )
    if spec.completions is not None and spec.completions < 1:
        yield "completions", f"{spec.completions} is none; at least 1"
    if spec.completions is not None and spec.policy is not GangPolicy.EACH:
        yield "completions", "only a Job whose processes stand alone (policy each) counts completions; leave it out"
    if spec.script is not None and spec.sbatch and spec.processes != 1:
        yield "processes", "an #SBATCH script is one process, whose srun starts the tasks; use --ntasks"


def _array(spec: JobSpec) -> Found:
    if spec.array is not None:
        indices, limit = spec.array.indices, spec.array.limit
        if not indices:
            yield "array", "the array has no index; write one, such as 1-10"
        if len(indices) > MAX_TASKS:
            yield "array", f"{len(indices)} tasks are too many; at most {MAX_TASKS}"
        if any(i < 0 or i >= MAX_TASKS for i in indices):
            yield "array", f"an index is out of range; 0 to {MAX_TASKS - 1} would work"
        if len(set(indices)) != len(indices):
            yield "array", "an index stands twice; each task has its own"
        if limit is not None and limit < 1:
            yield "array", f"the limit {limit} would let none run; at least 1, as in 1-10%3"
        if spec.array_index is not None:
            yield "array_index", "is set by the platform for each task of an array; leave it out"


def _times(spec: JobSpec) -> Found:
    for field in ("time_limit_s", "active_deadline_s", "grace_s"):
        value = getattr(spec, field)
        if value is None:
            continue
        if not math.isfinite(value):
            yield field, f"{value} is no time; leave it out for no limit"
        if value < 0 or (value == 0 and field != "grace_s"):
            yield field, f"{value:g} s is too short; more than 0, or leave it out for no limit"
    if spec.grace_s > MAX_GRACE:
        yield "grace_s", "is more than a hundred years; write a shorter one, such as 30s"
    if spec.begin_at is not None:
        try:
            datetime.fromtimestamp(spec.begin_at / 1_000_000, UTC)
        except (ValueError, OverflowError, OSError):
            yield "begin_at", "lies outside the calendar; write an instant such as 2026-12-01T08:00"
    if spec.stop_signal is not None:
        if spec.stop_signal.signal.removeprefix("SIG") not in _SIGNALS:
            yield "stop_signal", f"{spec.stop_signal.signal[:20]!r} is no signal; write USR1, TERM or INT"
        if not 0 <= spec.stop_signal.before_s <= 65_535:
            yield "stop_signal", "the time before the limit is out of range; 0 to 65535 s would work"


def _environment(spec: JobSpec) -> Found:
    yield from _variables("env", spec.env)


def _variables(of: str, variables: Mapping[str, str]) -> Found:
    for name, value in variables.items():
        field = f"{of}[{name[:80]!r}]"
        if not name or "=" in name or "\0" in name:
            yield field, "is not a variable's name: it is not empty and has neither = nor NUL"
        if "\0" in value:
            yield field, "contains a NUL character, which no program can be given; remove it"
        if not (_is_text(name) and _is_text(value)):
            yield field, _NO_TEXT
        if (size := _size(name) + 1 + _size(value)) > MAX_ENV_STRING:
            yield field, _too_long("the variable", size)


def _too_long(what: str, size: int) -> str:
    return f"{what} has {size} bytes and Linux hands a program at most {MAX_ENV_STRING}; put it in a file and pass its path"


_NO_TEXT = "has half of a surrogate pair in it, which is no text and no bytes that a program could be given"


def _is_text(text: str) -> bool:
    """Names that are not UTF-8 come in with surrogate escapes (U+DC80 to U+DCFF), and are bytes again for the program."""
    return text.isascii() or not any("\ud800" <= c < "\udc80" or "\udcff" < c <= "\udfff" for c in text)


def _size(text: str) -> int:
    """Bytes as the kernel counts them."""
    return len(text.encode("utf-8", "surrogatepass"))
