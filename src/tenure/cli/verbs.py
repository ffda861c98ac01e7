"""The verbs by name: a module each, loaded when it is called for.

A verb bears one name everywhere: `cli/cancel.py`, `control.verbs.cancel`, `POST /jobs/{id}:cancel`.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ALIASES", "VERBS", "Entry"]


class Entry(NamedTuple):
    group: str
    summary: str


VERBS: dict[str, Entry] = {
    "run": Entry("Jobs", "run a command now: stream its output, exit with its code"),
    "submit": Entry("Jobs", "queue a command, a Job YAML or an #SBATCH script; print the id"),
    "cancel": Entry("Jobs", "end jobs, wherever they are"),
    "retry": Entry("Jobs", "submit ended jobs again"),
    "hold": Entry("Jobs", "keep queued jobs from being admitted"),
    "release": Entry("Jobs", "let held jobs go, now or at a time"),
    "wait": Entry("Jobs", "return when jobs have ended; 1 if one did not complete"),
    "window": Entry("Jobs", "claim a whole card for a time: claim, release, ls"),
    "notebook": Entry("Jobs", "JupyterLab as a job, that stops when nobody uses it"),
    "ps": Entry("Look", "the jobs that are live; -a for all"),
    "queue": Entry("Look", "who waits, in order, and for what"),
    "show": Entry("Look", "one job: its spec, its attempts, how each ended"),
    "why": Entry("Look", "why a job waits, runs or ended, on one screen"),
    "logs": Entry("Look", "what a job printed; -f to follow"),
    "events": Entry("Look", "what happened, and by whom: jobs, models, windows, tokens; -f to follow"),
    "top": Entry("Look", "the cards and who holds them, live"),
    "cards": Entry("Look", "the cards that the platform knows"),
    "runs": Entry("Look", "the records: ls, show, diff"),
    "models": Entry("Models", "model servers: which are up or asleep; wake, sleep, advise"),
    "gateway": Entry("Models", "where models are asked: `gateway url`"),
    "drain": Entry("Platform", "keep a card from taking anything new; --move empties it"),
    "undrain": Entry("Platform", "put a card back into the pool"),
    "up": Entry("Platform", "start the platform; -d in the background"),
    "down": Entry("Platform", "stop the platform and what it runs"),
    "doctor": Entry("Platform", "check the platform and say what would mend it"),
    "policy": Entry("Platform", "check or try a policy directory, show or reload the platform's"),
    "capacity": Entry("Platform", "who waited, held and used the cards; text, JSON or a page"),
    "token": Entry("Platform", "the tokens for portal, REST and models: their rights, limits and use"),
    "completion": Entry("Platform", "print a completion script for bash, zsh or fish"),
    "version": Entry("Platform", "print the version"),
}

ALIASES: dict[str, str] = {
    "exec": "run",
    "add": "submit", "batch": "submit", "sbatch": "submit", "queue-up": "submit",
    "ls": "ps", "list": "ps", "status": "ps", "jobs": "ps",
    "get": "show", "describe": "show", "info": "show", "inspect": "show",
    "explain": "why",
    "log": "logs", "cat": "logs", "follow": "logs",
    "stop": "cancel", "kill": "cancel", "rm": "cancel", "scancel": "cancel",
    "redo": "retry", "restart": "retry", "rerun": "retry",
    "pause": "hold", "suspend": "hold",
    "resume": "release", "unhold": "release",
    "windows": "window", "reserve": "window",
    "jupyter": "notebook", "lab": "notebook",
    "model": "models",
    "squeue": "queue",
    "event": "events", "diary": "events",
    "queues": "queue",
    "gpus": "cards",
    "gpu": "cards",
    "run-records": "runs", "records": "runs",
    "cordon": "drain", "uncordon": "undrain",
    "start": "up", "shutdown": "down",
    "tokens": "token", "check": "doctor",
}  # fmt: skip
