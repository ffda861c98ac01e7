"""What the options of an #SBATCH script mean for a job: each on its own, and then together."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from tenure.domain.amounts import parse_bytes
from tenure.domain.ids import Instant

from .array import parse_array
from .durations import parse_duration, parse_slurm_time
from .instants import parse_instant
from .sbatch_lines import Given
from .sbatch_values import (
    TYPE,
    Export,
    parse_count,
    parse_dependency,
    parse_export,
    parse_signal,
    parse_size,
    parse_typed_count,
)

__all__ = ["APPLY", "Draft", "totals"]


@dataclass(slots=True)
class Draft:
    """What the options say so far."""

    now: Instant
    zone: tzinfo | None
    fields: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    export: Export = field(default_factory=Export)
    output: str | None = None
    error: str | None = None
    append: bool = False
    numbers: dict[str, int] = field(default_factory=dict)  # counts that other options multiply or contradict
    where: dict[str, Given] = field(default_factory=dict)


Apply = Callable[[Draft, Given], None]


def _sets(name: str, parse: Callable[[str], Any] = str) -> Apply:
    def apply(draft: Draft, given: Given) -> None:
        if not given.value.strip():
            raise ValueError("is empty; write a value")
        draft.fields[name] = parse(given.value)

    return apply


def _numbers(name: str, parse: Callable[[str], int] = parse_count) -> Apply:
    def apply(draft: Draft, given: Given) -> None:
        draft.numbers[name] = parse(given.value)

    return apply


def _gpus(name: str) -> Apply:
    def apply(draft: Draft, given: Given) -> None:
        draft.numbers[name], types = parse_typed_count(given.value)
        if types:
            draft.notes.append(f"line {given.line}: {given.shown}: the type {types} has no effect here")

    return apply


def _nodes(draft: Draft, given: Given) -> None:
    low, _, high = given.value.partition("-")
    least = parse_count(low)
    if high:
        parse_count(high, low=least)
    if least > 1:
        raise ValueError(f"{least} nodes do not work on one machine; write --nodes=1, and --ntasks for more processes")


def _gres(draft: Draft, given: Given) -> None:
    """`gpu[:type][:N]`, `shard:N` (a share is what Slurm calls a shard) and `gpu-memory:8G`; those of one name add up."""
    for name in ("gres gpu", "gres shard"):
        draft.numbers.pop(name, None)  # the last --gres counts, as in Slurm
    for part in given.value.split(","):
        words = re.sub(r"\(.*\)$", "", part.strip().removeprefix("gres/").removeprefix("gres:")).split(":")
        if len(words) == 1 and words[0].lower() in {"none", ""}:
            continue
        name, count = words[0], words[-1] if len(words) > 1 else "1"
        if name in {"gpu", "shard"} and len(words) == 2 and TYPE.fullmatch(count):  # gpu:a100 is one of them
            words, count = [*words, "1"], "1"
        if name == "gpu-memory" and len(words) == 2:
            draft.fields["gpu_memory"] = parse_size(count, unit="_")
        elif name in {"gpu", "shard"} and (len(words) < 3 or (len(words) == 3 and words[1])):
            draft.numbers[f"gres {name}"] = draft.numbers.get(f"gres {name}", 0) + parse_count(count, low=0)
            if len(words) == 3:
                draft.notes.append(f"line {given.line}: {given.shown}: the type {words[1]} has no effect here")
        elif name in {"gpu", "shard", "gpu-memory"} or not TYPE.fullmatch(name):
            raise ValueError(f"{part[:40]!r} is not understood; write gpu:1,gpu-memory:8G")
        else:
            draft.notes.append(
                f"line {given.line}: {given.shown}: {part} is not a resource that is known here; ignored"
            )


def _partition(draft: Draft, given: Given) -> None:
    if "," in given.value or not given.value:
        raise ValueError("name one partition: it is the queue that the job waits in")
    draft.fields["queue"] = given.value


def _time(draft: Draft, given: Given) -> None:
    draft.fields["time_limit_s"] = parse_slurm_time(given.value)


def _grace(text: str) -> float:
    seconds = parse_duration(text)
    if seconds is None:
        raise ValueError(f"{text!r} does not work; a grace has an end, such as 60s")
    return seconds


def _dependency(draft: Draft, given: Given) -> None:
    draft.fields["after"], notes = parse_dependency(given.value)
    draft.notes += [f"line {given.line}: {given.shown}: {note}" for note in notes]


def _export(draft: Draft, given: Given) -> None:
    draft.export, values = parse_export(given.value)
    draft.env = dict(values)


def _output(name: str) -> Apply:
    def apply(draft: Draft, given: Given) -> None:
        if not given.value:
            raise ValueError("is empty; write a file's name, such as out-%j.txt")
        setattr(draft, name, given.value)

    return apply


def _open_mode(draft: Draft, given: Given) -> None:
    modes = {"append": True, "a": True, "truncate": False, "t": False}
    if given.value not in modes:
        raise ValueError(f"{given.value[:40]!r} does not work; append or truncate would")
    draft.append = modes[given.value]


def _requeue(value: bool) -> Apply:
    def apply(draft: Draft, _: Given) -> None:
        draft.fields["requeue"] = value

    return apply


def _stop_signal(draft: Draft, given: Given) -> None:
    draft.fields["stop_signal"] = parse_signal(given.value)
    if "R" in given.value.rpartition(":")[0].upper():
        draft.notes.append(f"line {given.line}: {given.shown}: R has no effect here: there are no reservations")


def _begin(draft: Draft, given: Given) -> None:
    draft.fields["begin_at"] = parse_instant(given.value, draft.now, draft.zone)


def _label(name: str) -> Apply:
    def apply(draft: Draft, given: Given) -> None:
        draft.labels[name] = given.value

    return apply


def _flag(name: str) -> Apply:
    def apply(draft: Draft, _: Given) -> None:
        draft.fields[name] = True

    return apply


APPLY: Mapping[tuple[bool, str], Apply] = {
    **{
        (False, name): apply
        for name, apply in {
            "job-name": _sets("name"),
            "time": _time,
            "nodes": _nodes,
            "ntasks": _numbers("ntasks"),
            "ntasks-per-node": _numbers("ntasks-per-node"),
            "cpus-per-task": _numbers("cpus-per-task"),
            "cpus-per-gpu": _numbers("cpus-per-gpu"),
            "mem": _numbers("mem", lambda text: parse_size(text, unit="M")),
            "mem-per-cpu": _numbers("mem-per-cpu", lambda text: parse_size(text, unit="M")),
            "mem-per-gpu": _numbers("mem-per-gpu", lambda text: parse_size(text, unit="M")),
            "gres": _gres,
            "gpus": _gpus("gpus"),
            "gpus-per-node": _gpus("gpus-per-node"),
            "gpus-per-task": _gpus("gpus-per-task"),
            "partition": _partition,
            "qos": _sets("priority_class"),
            "array": _sets("array", parse_array),
            "dependency": _dependency,
            "output": _output("output"),
            "error": _output("error"),
            "open-mode": _open_mode,
            "requeue": _requeue(True),
            "no-requeue": _requeue(False),
            "export": _export,
            "chdir": _sets("workdir"),
            "signal": _stop_signal,
            "begin": _begin,
            "comment": _label("comment"),
            "account": _label("account"),
            "hold": _flag("suspended"),
        }.items()
    },
    **{
        (True, name): apply
        for name, apply in {
            "gpu-memory": _sets("gpu_memory", parse_bytes),
            "shares": _numbers("shares", lambda text: parse_count(text, low=0)),
            "whole": _flag("whole"),
            "project": _sets("project"),
            "queue": _sets("queue"),
            "priority": _sets("priority_class"),
            "grace": _sets("grace_s", _grace),
        }.items()
    },
}
"""By (stood on a #TENURE line, option): what it does to the draft.  Each raises ValueError with what would work."""


def totals(draft: Draft) -> list[tuple[str, str]]:
    """What the script as a whole asks for; contradictions as (option, message)."""
    numbers, fields = draft.numbers, draft.fields
    tasks = fields["tasks"] = _tasks(numbers)
    problems: list[tuple[str, str]] = []
    shares = {
        name: numbers[name] * (tasks if name == "gpus-per-task" else 1)
        for name in ("shares", "gres gpu", "gres shard", "gpus", "gpus-per-node", "gpus-per-task")
        if name in numbers
    }
    if len(set(shares.values())) > 1:
        said = ", ".join(f"{name.removeprefix('gres ')} {count}" for name, count in shares.items())
        problems.append(
            (_option(list(shares)[-1]), f"the options ask for different numbers of shares ({said}); keep one")
        )
    fields["shares"] = next(iter(shares.values()), 0)
    cpus = tasks * numbers.get("cpus-per-task", 1)
    if "cpus-per-gpu" in numbers:
        cpus = max(cpus, numbers["cpus-per-gpu"] * fields["shares"])
    if numbers.keys() & {"ntasks", "ntasks-per-node", "cpus-per-task", "cpus-per-gpu"}:
        fields["cpus"] = cpus * 1000
    memory = [name for name in ("mem", "mem-per-cpu", "mem-per-gpu") if name in numbers]
    if len(memory) > 1:
        problems.append((memory[-1], f"and --{memory[0]} exclude each other; keep one"))
    elif memory:
        times = {"mem": 1, "mem-per-cpu": cpus, "mem-per-gpu": fields["shares"]}[memory[0]]
        fields["memory"] = numbers[memory[0]] * times
        if memory[0] == "mem" and fields["memory"] == 0:
            draft.notes.append(
                f"line {draft.where['mem'].line}: --mem=0 asks for all memory of the node; here it counts as none asked for"
            )
    return problems


def _tasks(numbers: Mapping[str, int]) -> int:
    """As said; else as many as the cards are enough for, where both say how many cards (`--gpus=4 --gpus-per-task=2`)."""
    said = numbers.get("ntasks", numbers.get("ntasks-per-node"))
    if said is None and numbers.get("gpus-per-task"):
        return max(1, numbers.get("gpus", 0) // numbers["gpus-per-task"])
    return said or 1


def _option(name: str) -> str:
    return "gres" if name.startswith("gres ") else name
