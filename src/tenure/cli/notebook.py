"""`tenure notebook`: JupyterLab as a job; its address with its token, once it answers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from typing import Any

from . import submission
from .call import Call
from .client import Refused, Unreachable, job_path
from .follow import patiently
from .grammar import Option, Usage, Verb
from .render import emit, note, plain
from .times import seconds_of

FLAGS = ("--name", "--project", "--queue", "--priority", "--shares", "--gpu-memory", "--cpus", "--memory", "--time", "--env", "--workdir")  # fmt: skip

VERB = Verb(
    usage="notebook [flags] [ID]",
    options=(
        Option(names=("--idle",), value="DURATION", help="stop it after so long without use (default 1h)"),
        *(option for option in submission.FLAGS if option.names[0] in FLAGS),
        Option(names=("--program",), value="PATH", help="the Jupyter to start (default: jupyter-lab on your PATH)"),
    ),
    positionals=(0, 1),
    what="job id",
    details="""
    Runs at the priority `on-demand`: training may take its place, and it comes back when there is room.  It stops when
    kernels, terminals and card were idle for that long; a running cell is not idle.  The files stay in the directory.
    With the ID of a notebook that runs already, its address is printed again.
    """,
    examples=(
        ("tenure notebook --gpu-memory 8Gi", "one share and 8 GiB of the card"),
        ("tenure notebook --gpu-memory 8Gi --idle 30m --workdir ~/lab", "stops after half an hour without use"),
    ),
)

PROGRAM = "jupyter-lab"
MISSING = (
    "{name} is not on your PATH; install it where you work (`pip install jupyterlab`, or `uv tool install jupyterlab`), "
    "or name one with --program PATH"
)
WATCHER = "tenure.sdk.notebook"
LOOK_S = 0.1


def run(call: Call) -> int:
    if call.settings.url is not None:
        raise Usage("a notebook answers on the platform's own machine; run this there (TENURE_URL is set here)")
    if call.parsed.positionals:
        return _wait(call, call.ids[0], ours=False)
    name = call.parsed.text("program") or PROGRAM
    program = shutil.which(os.path.expanduser(name))
    if program is None:
        print(f"tenure notebook: {MISSING.format(name=name)}", file=sys.stderr)
        return 127
    body = _body(call, os.path.abspath(program))
    answer = submission.post(call, body)
    for text in answer.get("notes") or []:
        note(str(text))
    return _wait(call, str(answer["id"]), ours=True)


def _body(call: Call, program: str) -> dict[str, Any]:
    parsed = call.parsed
    idle_s = seconds_of(parsed.text("idle") or "1h", flag="--idle")
    if idle_s < 1:
        raise Usage("--idle: a notebook that stops within a second is no use; write 30m, 1h")
    body = submission.flags_of(call)
    where = body.get("workdir") or os.getcwd()
    if not os.path.isdir(where):
        raise Usage(f"--workdir {where!r}: there is no such directory")
    watcher = [sys.executable, "-P", "-m", WATCHER, "--idle", f"{idle_s:g}", "--root", where]
    body["argv"] = [*watcher, "--", program]
    body.setdefault("name", "notebook")
    body.setdefault("priority", "on-demand")
    if "gpu_memory" in body:
        body.setdefault("shares", 1)
    body["cwd"] = where
    body["environment"], _ = submission.submitter_environment(os.environ)
    return body


def _wait(call: Call, job: str, *, ours: bool) -> int:
    """Until it answers, or never will."""
    told = ""
    try:
        while True:
            shown = patiently(lambda: call.show(job))
            about = _about(call, shown)
            if about is not None:
                return _tell(call, shown, about)
            if WATCHER not in (shown["spec"].get("argv") or ()):
                raise Usage(f"job {job} ({shown['name']}) is no notebook; `tenure notebook` alone starts one")
            if shown["state"] == "ended":
                reason = plain(shown.get("message") or shown.get("reason") or shown.get("outcome"))
                print(
                    f"tenure notebook: job {job} ended before it answered: {reason} (`tenure logs --stderr {job}`)",
                    file=sys.stderr,
                )
                return 1
            standing = f"job {job} is {shown['state']}" + (f": {shown['message']}" if shown.get("message") else "")
            if standing != told and shown["state"] == "queued" and shown["reason"] != "PendingEvaluation":
                told = standing
                note(told)
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        if ours:
            with contextlib.suppress(Refused, Unreachable):
                call.client.post(job_path(job, ":cancel"), {"reason": "Ctrl-C in tenure notebook"})
        raise


def _about(call: Call, shown: dict[str, Any]) -> dict[str, Any] | None:
    """What the run that is up says of itself."""
    if shown["state"] != "running" or not shown.get("run_id"):
        return None
    try:
        text = (call.settings.runs_dir / str(shown["run_id"]) / "notebook.json").read_text("utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Usage(f"{error.filename}: {(error.strerror or str(error)).lower()}") from None
    return dict(json.loads(text))


def _tell(call: Call, shown: dict[str, Any], about: dict[str, Any]) -> int:
    if call.structured:
        emit({"job_id": shown["id"], "run_id": shown["run_id"], **about}, call.form)
    elif call.form == "name":
        print(shown["id"])
    else:
        print(about["url"], flush=True)
        note(
            f"the notebook is job {shown['id']}; its files stay in {about['root']}; `tenure cancel {shown['id']}` ends it"
        )
    return 0
