"""`tenure submit`: queue it and print the id, and nothing else, on stdout."""

from __future__ import annotations

from typing import Any

from . import submission
from .call import Call
from .grammar import Option, Verb
from .render import emit, note

VERB = Verb(
    usage="submit [flags] -- CMD | job.yaml | train.sbatch | script.sh [args]",
    options=(*submission.FLAGS, Option(names=("--watch", "-w"), help="stay, stream its output and exit with its code")),
    positionals=(0, None),
    what="file",
    command=True,
    stops=True,
    stops_unless=(".yaml", ".yml", ".json"),
    details="""
    Everything after `--` is the command, untouched.  A Job YAML is read as Kueue's users write it; #SBATCH lines are
    read from a script; flags win over both.  Your environment and this directory travel with the job.
    """,
    examples=(
        (
            "tenure submit --name digits --shares 2 --gpu-memory 8Gi -- python train.py",
            "two shares and 8 GiB of the card",
        ),
        ("tenure submit --array 1-10%3 -- python sweep.py", "ten jobs, at most three at a time"),
        ("tenure submit train.sbatch", "a Slurm script"),
    ),
)


def run(call: Call) -> int:
    body, notes = submission.body_of(call, file_allowed=True)
    for text in notes:
        note(text)
    if call.parsed.on("dry-run"):
        return dry_run(call, body)
    missing = submission.missing_program(call, body)
    if missing is not None:
        note(f"{missing}; it is queued all the same, and fails at its start unless that changes")
    answer = submission.post(call, body)
    report(call, answer)
    if call.parsed.on("watch"):
        from .run import stream

        return stream(call, answer)
    return 0


def report(call: Call, answer: Any) -> None:
    """The id on stdout; what was read and has no effect, on stderr."""
    for job in submission.jobs_in(answer):
        for text in job.get("notes") or []:
            note(str(text))
    if call.structured:
        emit(answer, call.form)
    else:
        print("\n".join(str(job["id"]) for job in submission.jobs_in(answer)), flush=True)


def dry_run(call: Call, body: dict[str, Any]) -> int:
    """What would be sent, without the environment's values."""
    shown = dict(body)
    shown["environment"] = f"{len(body.get('environment', {}))} variables of yours"
    emit(shown, "yaml" if call.form == "yaml" else "json")
    return 0
