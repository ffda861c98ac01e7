"""Events as sentences: who took what from whom, and why."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

__all__ = ["Teller"]


class Teller:
    """Prints one line an event that matters; the seconds are since the first line."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._began: float | None = None
        self._colour = sys.stdout.isatty()

    def say(self, text: str, *, strong: bool = False) -> None:
        now = time.monotonic()
        if self._began is None:
            self._began = now
        if strong and self._colour:
            text = f"\033[1m{text}\033[0m"
        print(f"{now - self._began:6.1f} s  {text}", flush=True)

    def tell(self, event: Mapping[str, Any]) -> None:
        sentence = self._sentence(event)
        if sentence:
            self.say(sentence)

    def _name(self, job: Any) -> str:
        return f"{self._names.get(str(job), 'job')} ({job})"

    def _sentence(self, event: Mapping[str, Any]) -> str:
        who, data, message = self._name(event["job_id"]), event["data"], event["message"]
        match event["kind"]:
            case "JobPending":
                return f"{who} waits: {message}"
            case "JobStarted":
                return f"{who} starts" + (f" again, as attempt {data['attempt']}" if data.get("attempt", 1) > 1 else "")
            case "JobPreempted":
                return f"{self._name(data.get('by'))} takes the card from {who} [{data.get('rule')}]"
            case "JobRequeued":
                return f"{who} has left, its record is closed as {data.get('outcome')}; it is queued again"
            case "JobCancelRequested":
                return f"{who} is asked to end: {message}"
            case "JobEnded":
                how = event["changes"].get("outcome")
                code = event["changes"].get("exit_code")
                why = f" ({message})" if how == "cancelled" and message else ""
                return f"{who} ends: {how}" + (f", exit code {code}" if code else "") + why
            case "AttemptAdopted":
                return f"{who} was found running and is watched again"
            case "ModelWoken":
                return str(message)
            case "ModelHeld":
                return f"a question is held: {data['model']} is {data['state']}"
            case "ModelChanged" if data["state"] in ("ready", "failed"):
                return str(message)
            case "DaemonStarted":
                return str(message)
            case _:
                return ""
