"""`tenure policy try`: what each queue would have seen under other files, beside what it would see under today's."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from .call import Call
from .client import Refused, Unreachable
from .grammar import Usage
from .in_process import refusals
from .render import emit, plain, span, table
from .times import seconds_of

__all__ = ["lines", "run"]

WEEK = "7d"


def run(call: Call, files: list[list[str]]) -> int:
    """Replays here, on what lies in the home; only a platform on another machine is asked to do it itself."""
    parsed = call.parsed
    since_s = seconds_of(parsed.text("since") or WEEK, flag="--since")
    trace = parsed.text("trace")
    if call.settings.url and trace is None:
        body = {"files": [{"name": name, "text": text} for name, text in files], "since_s": since_s}
        answer = call.client.call("POST", "/policy:try", body=body, timeout_s=600)
    else:
        from tenure.control import views

        with refusals():
            answer = views.try_policy_at_rest(
                call.settings,
                files,
                in_force=_in_force(call),
                since_s=since_s,
                trace=_trace(Path(trace)) if trace is not None else None,
                resume=parsed.text("resume") or "remaining",
            )
    if call.structured:
        emit(answer, call.form)
    else:
        print("\n".join(lines(answer)))
    return 0


def _in_force(call: Call) -> Any:
    """The policy of the running platform, which may not have read its directory lately; None where none runs."""
    from tenure.manifests.policy import read_policy

    with contextlib.suppress(Unreachable, Refused):
        return read_policy([("in force", call.client.get("/policy")["yaml"])]).policy
    return None


def _trace(path: Path) -> tuple[str, str]:
    try:
        return path.name, path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise Usage(f"--trace {path}: not text in UTF-8: {error}") from None
    except OSError as error:
        raise Usage(f"--trace {path}: {(error.strerror or str(error)).lower()}") from None


def lines(answer: dict[str, Any]) -> list[str]:
    """A row a queue; `before -> after` in every cell, once where both are the same."""
    before, after = answer["before"], answer["after"]
    shown = [
        f"{answer['jobs']} jobs from {plain(answer['source'])}, {answer['since'][:16]}Z to {answer['until'][:16]}Z"
    ]
    head = ["QUEUE", "JOBS", "WAIT P50", "WAIT P90", "PREEMPTED", "SHARES USED", "MEMORY USED", "NEVER STARTED"]
    names = list(dict.fromkeys([*before["queues"], *after["queues"]]))
    rows = [[name, *_cells(before["queues"].get(name), after["queues"].get(name))] for name in names]
    if len(names) > 1:
        rows.append(["all", *_cells(before["total"], after["total"])])
    shown += table(head, rows)
    fidelity = answer.get("fidelity")
    if fidelity:
        shown.append(
            f"under the policy in force the replay starts half of {fidelity['compared']} jobs within "
            f"{span(fidelity['off_p50_s'])} of when they did start, nine in ten within {span(fidelity['off_p90_s'])}"
        )
    return [*shown, *(f"note: {plain(note)}" for note in answer["notes"])]


def _cells(old: dict[str, Any] | None, new: dict[str, Any] | None) -> list[str]:
    return [
        _pair(*(str(side["jobs"]) if side else None for side in (old, new))),
        _pair(*(_wait(side, "wait_p50_s") for side in (old, new))),
        _pair(*(_wait(side, "wait_p90_s") for side in (old, new))),
        _pair(*(str(side["preempted"]) if side else None for side in (old, new))),
        _pair(*(_use(side, "share_s", "shares_of_nominal", "share-h") for side in (old, new))),
        _pair(*(_use(side, "gib_s", "memory_of_nominal", "GiB-h") for side in (old, new))),
        _pair(*(_unmet(side) for side in (old, new))),
    ]


def _pair(old: str | None, new: str | None) -> str:
    """What it was and what it would be; `-` for a queue that is not there."""
    old, new = old or "-", new or "-"
    return old if old == new else f"{old} -> {new}"


def _wait(side: dict[str, Any] | None, key: str) -> str | None:
    return None if side is None or side[key] is None else span(side[key])


def _use(side: dict[str, Any] | None, key: str, ratio: str, unit: str) -> str | None:
    if side is None:
        return None
    part = side["use"][ratio]
    return f"{side['use'][key] / 3600:.1f} {unit}" + ("" if part is None else f" ({part:.0%})")


def _unmet(side: dict[str, Any] | None) -> str | None:
    if side is None:
        return None
    unmet = side["unmet"]
    return f"{unmet['jobs']}" + (f" ({unmet['share_s'] / 3600:.1f} share-h)" if unmet["share_s"] else "")
