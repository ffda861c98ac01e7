"""From flags, a command or a file to a JobSubmission: what `run`, `submit` and their `--dry-run` share.

Amounts and times travel as they were typed: the platform reads them, so that every door is refused in the same words.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .call import Call
from .grammar import Option, Parsed, Usage
from .times import moment_here

__all__ = ["FLAGS", "body_of", "flags_of", "ids_in", "jobs_in", "missing_program", "post", "submitter_environment"]

FLAGS = (
    Option(names=("--name", "-J"), value="NAME", help="what to call it (default: the program's name)"),
    Option(names=("--project",), value="NAME", help="whose experiment it belongs to"),
    Option(names=("--namespace",), value="NAME", help="the namespace of the policy", hidden=True),
    Option(names=("--queue", "-q"), value="NAME", help="the local queue to wait in"),
    Option(names=("--priority", "-p"), value="CLASS", help="a priority class of the policy, such as training or batch"),
    Option(names=("--shares",), value="N", help="shares of one card, per process"),
    Option(names=("--whole",), help="a whole card, per process"),
    Option(names=("--gpu-memory",), value="AMOUNT", help="the card's memory per process, such as 8Gi"),
    Option(names=("--cpus", "-c"), value="N", help="processors per process: 2, 500m"),
    Option(names=("--memory",), value="AMOUNT", help="main memory per process, such as 4Gi"),
    Option(names=("--request",), value="NAME=AMOUNT", many=True, help="any other resource of the policy"),
    Option(names=("--time", "-t"), value="DURATION", help="time limit: 2h, 2h30m, HH:MM:SS; a bare number is minutes"),
    Option(names=("--gang",), value="N[:MIN]", help="N processes, all or none; above MIN they may be taken first"),
    Option(names=("--array", "-a"), value="LIST[%MAX]", help="one job per index, such as 1-10%3"),
    Option(
        names=("--after", "-A"),
        value="[KIND:]ID",
        many=True,
        help="start after it; KIND: after afterany afterok afternotok",
    ),
    Option(names=("--begin",), value="TIME", help="not before: now+1hour, or an RFC 3339 time"),
    Option(names=("--env", "-e"), value="K=V", many=True, help="set a variable; K alone takes yours"),
    Option(names=("--label", "-l"), value="K=V", many=True, help="a label for people and scripts"),
    Option(names=("--workdir", "-C"), value="DIR", help="where it runs (default: here)"),
    Option(names=("--grace",), value="DURATION", help="between the request to stop and the kill, such as 30s"),
    Option(names=("--output",), value="PATTERN", help="also write stdout there (%x %j %A %a)"),
    Option(names=("--error",), value="PATTERN", help="also write stderr there"),
    Option(names=("--requeue",), help="run again after an interruption (the default of most jobs)"),
    Option(names=("--no-requeue",), help="an interruption is the end"),
    Option(names=("--retries",), value="N", help="run again up to N times when it fails"),
    Option(names=("--hold",), help="queue it, and wait for `tenure release`"),
    Option(names=("--window",), help="claim the whole card while it runs, as `tenure window` does"),
    Option(names=("--including-resident",), help="with --window: resident work has to leave, too"),
    Option(names=("--idempotency-key",), value="KEY", help="the same key again answers with the same job"),
    Option(names=("--dry-run",), help="print what would be submitted, and submit nothing"),
)

# A token or a database's address must not rest in the ledger; what says *which* platform this is may travel.
_KEPT = frozenset({"TENURE_HOME", "TENURE_URL"})
# Set by the platform for one process of one attempt: a job that submits another must not hand on its own rank.
_OF_A_JOB = frozenset(
    {
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "JOB_COMPLETION_INDEX",
    }
)


def submitter_environment(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The environment that travels, and the names of what cannot (values that are not UTF-8)."""
    inside = "TENURE_JOB_ID" in environ
    kept: dict[str, str] = {}
    left: list[str] = []
    for name, value in environ.items():
        ours = name.startswith("TENURE_") and name not in _KEPT
        enclosing = inside and (name in _OF_A_JOB or name.startswith("SLURM_"))
        if ours or enclosing:
            continue
        if _is_text(name) and _is_text(value):
            kept[name] = value
        else:
            left.append(name)
    return kept, left


def body_of(call: Call, *, file_allowed: bool) -> tuple[dict[str, Any], list[str]]:
    """The JobSubmission, and notes for the person.  Raises Usage."""
    parsed = call.parsed
    notes: list[str] = []
    body: dict[str, Any] = {}
    if parsed.command is not None or not file_allowed:
        _command(parsed, body)
    else:
        _file(parsed, body, notes)
    _flags(call, body)
    body["cwd"] = _here()
    if call.settings.url is None and "workdir" in body and not os.path.isdir(body["workdir"]):
        raise Usage(f"--workdir {body['workdir']!r}: there is no such directory")
    body["environment"], left = submitter_environment(os.environ)
    if left:
        notes.append(f"not text in UTF-8, so left out of the job's environment: {', '.join(map(repr, sorted(left)))}")
    _check_text(body)
    return body, notes


def post(call: Call, body: Mapping[str, Any]) -> Any:
    """Submit once.  A reply that was lost on the way is asked for again under the same key, so it can never be twice."""
    from .client import Unreachable

    key = call.parsed.text("idempotency-key") or os.urandom(16).hex()
    headers = {"Idempotency-Key": key}
    try:
        return call.client.post("/jobs", body, headers)
    except Unreachable as error:
        if isinstance(error.__cause__, (FileNotFoundError, ConnectionRefusedError, PermissionError)):
            raise  # nobody was there to take it
        from .follow import patiently

        return patiently(lambda: call.client.post("/jobs", body, headers), bound_s=20.0)


def jobs_in(answer: Any) -> list[Any]:
    """The jobs and arrays of an answer: one, or several where a file held several."""
    return list(answer["jobs"]) if "jobs" in answer else [answer]


def flags_of(call: Call) -> dict[str, Any]:
    """What the flags alone say, for a verb that brings its own command.  Raises Usage."""
    body: dict[str, Any] = {}
    _flags(call, body)
    return body


def ids_in(job: Any) -> list[str]:
    """The ids that run: the job's own, or those of an array's tasks."""
    tasks = job.get("tasks")
    if not isinstance(tasks, list):
        return [str(job["id"])]
    return [str(task["id"] if isinstance(task, dict) else task) for task in tasks]


def missing_program(call: Call, body: Mapping[str, Any]) -> str | None:
    """Why the program of a command cannot be started, as the shell would put it; None if it can, or is elsewhere."""
    if call.settings.url is not None or "argv" not in body:
        return None
    name, workdir = body["argv"][0], body.get("workdir") or body["cwd"]
    path = (body.get("env") or {}).get("PATH") or body["environment"].get("PATH")
    if "/" in name:
        found = os.path.join(workdir, name)
        if not os.path.exists(found):
            return f"{name}: no such file (in {workdir})"
        if os.path.isdir(found) or not os.access(found, os.X_OK):
            return f"{name}: is not executable"
        return None
    import shutil

    if shutil.which(name, path=path) is None:
        return f"{name}: command not found (in the PATH that the job would have)"
    return None


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise Usage("this directory has been removed; go elsewhere, or give --workdir DIR") from None


def _command(parsed: Parsed, body: dict[str, Any]) -> None:
    extra = parsed.positionals
    command = parsed.command if parsed.command is not None else extra
    if parsed.command is not None and extra:
        raise Usage(f"{extra[0]!r} stands before `--`: the whole command goes after it")
    if not command:
        raise Usage("needs a command after `--`, such as: -- python train.py")
    body["argv"] = list(command)


def _file(parsed: Parsed, body: dict[str, Any], notes: list[str]) -> None:
    if not parsed.positionals:
        raise Usage("needs a command after `--`, or a file: job.yaml, train.sbatch, script.sh (- reads stdin)")
    name, *arguments = parsed.positionals
    text = _read(name)
    shown = "stdin" if name == "-" else name
    if name.lower().endswith((".yaml", ".yml", ".json")) or (name == "-" and _looks_like_yaml(text)):
        if arguments:
            raise Usage(f"{arguments[0]!r}: a Job file takes no arguments")
        body["file"] = {"name": shown, "text": text}
        return
    if text.startswith("\ufeff#!"):
        raise Usage(f"{shown} begins with a byte order mark, and no interpreter is found that way; save it without one")
    if not text.startswith("#!"):
        raise Usage(
            f"{shown} is neither a Job (.yaml) nor a script: a script's first line says what runs it, such as #!/bin/bash"
            + _as_a_program(name)
        )
    swallowed = [word for word in arguments if any(word.partition("=")[0] in option.names for option in FLAGS)]
    if swallowed:
        notes.append(
            f"{swallowed[0]} stands after {shown}, so it goes to the script; flags of tenure go before the file"
        )
    if any(line.startswith("#SBATCH") for line in text.splitlines()):
        body["file"] = {"name": shown, "text": text}
    else:
        body["script"] = text
        body["name"] = "script" if name == "-" else os.path.basename(name)
    if arguments:
        body["script_args"] = arguments


def _read(name: str) -> str:
    import sys

    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except FileNotFoundError:
        raise Usage(f"there is no file {name!r} here; a command goes after `--`: tenure submit -- {name} …") from None
    except OSError as error:
        raise Usage(f"{name}: {(error.strerror or str(error)).lower()}") from None
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Usage(f"{name} is not text in UTF-8{_as_a_program(name)}") from None


def _as_a_program(name: str) -> str:
    """How a file that is no submission would be run, if that was meant."""
    if name == "-":
        return ""
    lead = "python " if name.endswith(".py") else "" if "/" in name else "./"
    return f"; to run a program, put it after `--`: tenure submit -- {lead}{name}"


def _looks_like_yaml(text: str) -> bool:
    return not text.startswith("#!") and ("apiVersion:" in text or text.lstrip().startswith("{"))


def _flags(call: Call, body: dict[str, Any]) -> None:
    parsed = call.parsed
    for key in ("name", "project", "namespace", "queue", "priority", "gpu-memory", "cpus", "memory", "time", "gang", "array", "begin", "grace", "output", "error"):  # fmt: skip
        value = parsed.text(key)
        if value is not None:
            body[key.replace("-", "_")] = moment_here(value) if key == "begin" else value
    for key, target in (("shares", "shares"), ("retries", "backoff_limit")):
        number = parsed.count(key)
        if number is not None:
            body[target] = number
    for key in ("whole", "hold", "window", "including-resident"):
        if parsed.on(key):
            body[key.replace("-", "_")] = True
    if parsed.on("including-resident") and not parsed.on("window"):
        raise Usage("--including-resident says whom a window asks to leave; give --window, too")
    if parsed.on("requeue") and parsed.on("no-requeue"):
        raise Usage("--requeue and --no-requeue exclude each other; give one")
    if parsed.on("requeue") or parsed.on("no-requeue"):
        body["requeue"] = parsed.on("requeue")
    if parsed.text("workdir") is not None:
        body["workdir"] = os.path.abspath(os.path.expanduser(parsed.text("workdir") or ""))
    for key, target in (("request", "requests"), ("label", "labels")):
        if parsed.many(key):
            body[target] = dict(_pair(key, item) for item in parsed.many(key))
    if parsed.many("env"):
        body["env"] = dict(_variable(item) for item in parsed.many("env"))
    if parsed.many("after"):
        words = [word for item in parsed.many("after") for word in item.split(",") if word]
        body["after"] = [_dependency(call, word) for word in words]


def _pair(key: str, item: str) -> tuple[str, str]:
    name, sep, value = item.partition("=")
    if not sep or not name:
        raise Usage(f"--{key} {item!r}: write NAME=VALUE")
    return name, value


def _variable(item: str) -> tuple[str, str]:
    name, sep, value = item.partition("=")
    if not name:
        raise Usage(f"--env {item!r}: write K=V, or K alone to hand on yours")
    if sep:
        return name, value
    if name not in os.environ:
        raise Usage(f"--env {name}: there is no such variable here; write {name}=VALUE")
    return name, os.environ[name]


def _dependency(call: Call, word: str) -> str:
    kind, sep, job = word.rpartition(":")
    return f"{kind}{sep}{call.job_id(job)}"


def _is_text(value: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in value)


def _check_text(body: Mapping[str, Any]) -> None:
    """Bytes that are not UTF-8 cannot travel as JSON: say so before anything is sent."""
    for word in [*body.get("argv", ()), *body.get("script_args", ()), body.get("name", ""), body.get("workdir", "")]:
        if not _is_text(word):
            raise Usage(f"{word!a} is not text in UTF-8, which is what a job's words must be")
        if "\0" in word:
            raise Usage(f"{word!r} has a NUL in it, which no process can be given")
