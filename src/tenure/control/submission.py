"""What a door was handed, as job specs.

One reader for every way in, so that a command line, a form, an agent and a file mean the same and are refused in the
same words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tenure.domain.amounts import parse_bytes, parse_quantity
from tenure.domain.errors import InvalidRequest
from tenure.domain.ids import Instant
from tenure.domain.job import ArraySpec, Dependency, DependencyKind, GangPolicy, JobSpec, LogSpec
from tenure.manifests.array import parse_array
from tenure.manifests.durations import parse_duration
from tenure.manifests.instants import parse_instant
from tenure.manifests.rules import check_environment
from tenure.manifests.sbatch_values import Export
from tenure.manifests.submission import read_submission

from .namings import nearest

__all__ = ["FIELDS", "Asked", "asked_of", "environment_of", "field_of"]

FIELDS = (
    *("argv", "script", "script_args", "file", "name", "project", "namespace", "queue", "priority"),
    *("shares", "whole", "gpu_memory", "cpus", "memory", "requests", "time", "gang", "array", "after", "begin"),
    *("env", "environment", "workdir", "cwd", "grace", "requeue", "backoff_limit", "output", "error"),
    *("hold", "window", "including_resident", "labels"),
)


_SAID_AS = {
    "priority_class": "priority", "time_limit_s": "time", "grace_s": "grace", "begin_at": "begin", "suspended": "hold",
    "processes": "gang", "min_processes": "gang", "logs.output": "output", "logs.error": "error",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The jobs, and what of the submitter's environment they get (`--export` of an #SBATCH script)."""

    specs: list[JobSpec]
    export: Export = field(default_factory=Export)

    def exported(self, environment: Mapping[str, str]) -> dict[str, str]:
        if self.export.all:
            return dict(environment)
        # Slurm keeps what a login would set, so that programs are found at all.
        kept = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", *self.export.names}
        return {name: value for name, value in environment.items() if name in kept}


def asked_of(body: Mapping[str, Any], *, now: Instant, owner: str) -> Asked:
    """What `body` (a JobSubmission) asks for.  Raises InvalidRequest naming the field and what would work.

    `workdir` is said on purpose and wins over a file's; `cwd` is where the submitter stood: the default, and what a
    file's relative directory is relative to.
    """
    export = Export()
    unknown = sorted(set(body) - set(FIELDS))
    if unknown:
        raise InvalidRequest(
            f"unknown field {unknown[0]!r}{nearest(unknown[0], FIELDS)}", field=unknown[0], code="UnknownField"
        )
    ways = [way for way in ("argv", "script", "file") if body.get(way)]
    if len(ways) != 1:
        raise InvalidRequest(
            "give exactly one of argv (a command), script (text) and file (a Job or an #SBATCH script)"
            + (f"; this has {' and '.join(ways)}" if ways else ""),
            field="argv",
        )
    if ways[0] == "file":
        file = body["file"]
        if not isinstance(file, Mapping) or not isinstance(file.get("text"), str):
            raise InvalidRequest("file must be {name, text}", field="file")
        reading = read_submission(str(file.get("name") or "submission"), file["text"], now)
        specs, export = list(reading.specs), reading.export
        if not specs:
            raise InvalidRequest(f"{file.get('name')}: there is no job in it", field="file")
        specs = [replace(spec, script_args=tuple(_strings(body, "script_args")) or spec.script_args) for spec in specs]
    elif ways[0] == "script":
        specs = [JobSpec(name="", script=_string(body, "script"), script_args=tuple(_strings(body, "script_args")))]
    else:
        specs = [JobSpec(name="", argv=tuple(_strings(body, "argv")))]
        if body.get("script_args"):
            raise InvalidRequest("a command has no script_args; add them to argv", field="script_args")
    cwd = _string(body, "cwd") if body.get("cwd") is not None else ""
    return Asked(specs=[_finish(_override(s, body, now=now), owner=owner, cwd=cwd) for s in specs], export=export)


def environment_of(body: Mapping[str, Any]) -> dict[str, str]:
    """The submitter's environment, as it travels.  Raises InvalidRequest where no program could be given it."""
    if body.get("environment") is None:
        return {}
    variables = _texts(body, "environment")
    check_environment(variables)
    return variables


def field_of(part: str | None) -> str | None:
    """The field of a submission that a part of a JobSpec came from: what the submitter is to mend."""
    name, bracket, rest = (part or "").partition("[")
    return _SAID_AS.get(name, name) + bracket + rest if part else part


def _override(spec: JobSpec, body: Mapping[str, Any], *, now: Instant) -> JobSpec:
    """Fields given beside a file win over the file, as flags of sbatch do."""
    changes: dict[str, Any] = {}
    notes = list(spec.notes)
    for name in ("name", "project", "namespace", "queue", "workdir"):
        if body.get(name) is not None:
            changes[name] = _string(body, name)
    if body.get("priority") is not None:
        changes["priority_class"] = _string(body, "priority")
    if body.get("shares") is not None:
        changes["shares"] = _integer(body, "shares")
    for flag in ("whole", "requeue", "window", "including_resident"):
        if body.get(flag) is not None:
            changes[flag] = _boolean(body, flag)
    if body.get("hold") is not None:
        changes["suspended"] = _boolean(body, "hold")
    for name in ("gpu_memory", "memory"):
        if body.get(name) is not None:
            changes[name] = _read(body, name, parse_bytes)
    if body.get("cpus") is not None:
        changes["cpus"] = _read(body, "cpus", _amount_of("cpu"))
    if body.get("requests") is not None:
        requests = _mapping(body, "requests")
        changes["requests"] = {str(k): _read(requests, k, _amount_of(str(k))) for k in requests}
    if body.get("time") is not None:
        changes["time_limit_s"] = _read(body, "time", lambda value: parse_duration(str(value)))
        if str(body["time"]).strip().isdigit():
            meaning = (
                "no limit, as Slurm reads it"
                if changes["time_limit_s"] is None
                else "minutes, as Slurm reads a bare number"
            )
            notes.append(f"time {body['time']} was read as {meaning}")
    if body.get("grace") is not None:
        changes["grace_s"] = _read(body, "grace", _seconds)
    if body.get("gang") is not None:
        size, minimum = _read(body, "gang", _gang)
        changes |= {"processes": size, "min_processes": minimum, "gang": True, "policy": GangPolicy.ALL}
    if body.get("array") is not None:
        changes["array"] = _read(body, "array", _array)
    if body.get("after") is not None:
        after = body["after"]
        changes["after"] = tuple(map(_dependency, [after] if isinstance(after, str) else _strings(body, "after")))
    if body.get("begin") is not None:
        changes["begin_at"] = _read(body, "begin", lambda text: parse_instant(str(text), now))
    if body.get("env") is not None:
        changes["env"] = {**spec.env, **_texts(body, "env")}
    if body.get("labels") is not None:
        changes["labels"] = {**spec.labels, **_texts(body, "labels")}
    if body.get("backoff_limit") is not None:
        changes["backoff_limit"] = _integer(body, "backoff_limit")
    if body.get("output") is not None or body.get("error") is not None:
        output, error = (_string(body, name) if body.get(name) is not None else "" for name in ("output", "error"))
        changes["logs"] = LogSpec(
            output=output or spec.logs.output, error=error or spec.logs.error, append=spec.logs.append
        )
    changed = replace(spec, **changes, notes=tuple(notes))
    if changed.including_resident and not changed.window:
        message = "including_resident says whom a window asks to leave, and this job has none; give window, too"
        raise InvalidRequest(message, field="including_resident")
    return changed


def _finish(spec: JobSpec, *, owner: str, cwd: str) -> JobSpec:
    """Fill in what follows from the rest: a name from the command, a directory, an owner."""
    name = spec.name or (Path(spec.argv[0]).name if spec.argv else "script")
    workdir = spec.workdir or cwd or spec.env.get("HOME") or str(Path.home())
    if cwd and not Path(workdir).is_absolute():
        workdir = str(Path(cwd, workdir))
    if not Path(workdir).is_absolute():
        raise InvalidRequest(f"workdir {workdir!r} is not an absolute path", field="workdir")
    return replace(spec, name=name, workdir=workdir, owner=owner)


def _amount_of(resource: str) -> Callable[[Any], int]:
    return lambda value: parse_quantity(value, resource=resource)


def _seconds(value: Any) -> float:
    """A grace is short: a bare number is seconds, as `docker stop -t` reads it."""
    text = str(value).strip()
    if text.isascii() and text.replace(".", "", 1).isdigit():
        return float(text)
    try:
        return parse_duration(text) or 0.0
    except ValueError as error:
        raise ValueError(str(error).replace("a number of minutes", "a number of seconds")) from None


def _gang(text: Any) -> tuple[int, int | None]:
    size, sep, minimum = str(text).partition(":")
    if not size.strip().isdecimal() or (sep and not minimum.strip().isdecimal()) or not str(text).isascii():
        raise ValueError(f"{text!r} is not a gang; write N or N:MIN, such as 4 or 4:2")
    return int(size), int(minimum) if sep else None


def _array(text: Any) -> ArraySpec:
    return text if isinstance(text, ArraySpec) else parse_array(str(text))


def _dependency(item: str) -> Dependency:
    if not item.strip():
        raise InvalidRequest("after takes job ids, such as 37 or afterany:38", field="after")
    kind, sep, job = item.strip().rpartition(":")
    if not sep:
        return Dependency(job=job)
    try:
        return Dependency(job=job, kind=DependencyKind(kind))
    except ValueError:
        kinds = ", ".join(DependencyKind)
        raise InvalidRequest(f"{kind!r} is not a kind of dependency; there are {kinds}", field="after") from None


def _read(body: Mapping[str, Any], name: str, parse: Callable[[Any], Any]) -> Any:
    try:
        return parse(body[name])
    except (ValueError, TypeError) as error:
        raise InvalidRequest(f"{name}: {error}", field=name) from None


def _string(body: Mapping[str, Any], name: str) -> str:
    value = body[name]
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} must be text, not {type(value).__name__}", field=name)
    return value


def _strings(body: Mapping[str, Any], name: str) -> Sequence[str]:
    value = body.get(name) or []
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise InvalidRequest(f"{name} must be a list of texts", field=name)
    return value


def _integer(body: Mapping[str, Any], name: str) -> int:
    value = body[name]
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{name} must be a whole number, not {value!r}", field=name)
    return value


def _boolean(body: Mapping[str, Any], name: str) -> bool:
    value = body[name]
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} must be true or false, not {value!r}", field=name)
    return value


def _mapping(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body[name]
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{name} must be an object of names and values", field=name)
    return value


def _texts(body: Mapping[str, Any], name: str) -> dict[str, str]:
    found = _mapping(body, name)
    wrong = next((key for key, value in found.items() if not isinstance(value, str)), None)
    if wrong is not None:
        raise InvalidRequest(f"{name}: the value of {wrong!r} must be text, not {found[wrong]!r}", field=name)
    return {str(key): value for key, value in found.items()}
