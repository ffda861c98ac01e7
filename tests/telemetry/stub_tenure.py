#!/usr/bin/env python3
"""A platform as small as check_card.py can tell, and wrong in one way on demand (STUB_FAULT).

It is here so that each check is seen to fail: the real platform, one hopes, gives it no occasion to.
    none          nothing is wrong           hasty      a preemptor starts while its victim still holds the card
    unmeasured    no memory is measured      blind      jobs are not told which card is theirs
    stranger      memory is another job's    leaves     something outlives `down`
    found-none    it knows no card
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from nvml_state import NvmlState

FAULT = os.environ.get("STUB_FAULT", "none")
HOME = Path(os.environ["TENURE_HOME"])
STATE = NvmlState.attach()
UUID = STATE.card(0).uuid.decode()


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def environ() -> dict[str, str]:
    return {**os.environ, "CUDA_VISIBLE_DEVICES": "0" if FAULT == "blind" else UUID}


def jobs() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(HOME.glob("*.json"))]


def save(job: dict[str, Any]) -> None:
    (HOME / f"{job['id']}.json").write_text(json.dumps(job))


def end(job: dict[str, Any], *, wait: bool) -> None:
    if lives(job["pid"]):
        os.kill(job["pid"], signal.SIGTERM)
    while wait and lives(job["pid"]):
        time.sleep(0.01)


def flag(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def submit(words: list[str]) -> None:
    flags, command = words[: words.index("--")], words[words.index("--") + 1 :]
    job: dict[str, Any] = {"id": str(len(jobs()) + 1), "evicted": None}
    for victim in jobs() if flag(flags, "--priority") == "training" else []:
        victim["evicted"] = {"by": job["id"]}
        save(victim)
        end(victim, wait=FAULT != "hasty")
    with (HOME / f"{job['id']}.log").open("w") as log:
        process = subprocess.Popen(
            command, env=environ(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    save(job | {"pid": process.pid, "declared": int(flag(flags, "--gpu-memory").removesuffix("Mi")) << 20})
    print(job["id"])
    process.returncode = 0  # it goes on without us, and that is no oversight


def holders() -> list[dict[str, Any]]:
    found = []
    for job in jobs():
        measured = sum(place.memory for place in STATE.card(0).processes if place.pid == job["pid"])
        measured = {"unmeasured": None, "stranger": 0}.get(FAULT, measured)
        if lives(job["pid"]):
            found.append({"id": job["id"], "memory_declared": job["declared"], "memory_measured": measured})
    return found


def main(verb: str, words: list[str]) -> int:
    job = next((job for job in jobs() if words and job["id"] == words[0]), None)
    match verb:
        case "up":
            HOME.mkdir()
            if FAULT == "leaves":
                silence = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                subprocess.Popen(["sleep", "300"], start_new_session=True, **silence).returncode = 0
        case "down":
            for each in jobs():
                end(each, wait=True)
        case "cards":
            print(json.dumps([] if FAULT == "found-none" else [{"id": UUID, "name": "fake", "source": "measured"}]))
        case "run":
            os.execvpe(words[words.index("--") + 1], words[words.index("--") + 1 :], environ())
        case "submit":
            submit(words)
        case "logs":
            print((HOME / f"{words[0]}.log").read_text(), end="")
        case "show":
            assert job is not None
            state = "running" if lives(job["pid"]) else "ended"
            print(json.dumps({"state": state, "attempts": [{"outcome": "interrupted", "evicted": job["evicted"]}]}))
        case "cancel":
            assert job is not None
            end(job, wait=True)
        case "top":
            print(json.dumps([{"id": UUID, "holders": holders()}]))
        case _:
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
