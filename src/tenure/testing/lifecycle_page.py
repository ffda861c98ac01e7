"""Draws `docs/lifecycle.md` from the table in `tenure.domain.lifecycle`.

`python -m tenure.testing.lifecycle_page > docs/lifecycle.md`; a test holds the page and the table equal.
"""

from __future__ import annotations

from tenure.domain.lifecycle import HOLDS_QUOTA, TERMINAL, TRANSITIONS, JobEvent, JobState

__all__ = ["page"]

MEANING = {
    JobState.QUEUED: "waits, with a reason",
    JobState.ADMITTED: "quota is reserved and a place is found; the attempt is being started",
    JobState.RUNNING: "its first process has started",
    JobState.EVICTING: "asked to leave by the platform; it will be queued again",
    JobState.CANCELLING: "asked to end by a person or an agent; it will not come back",
    JobState.ENDED: "over, with an outcome",
}
EVENT = {
    JobEvent.ADMIT: "the engine reserved quota and a place",
    JobEvent.START: "the supervisor reported the first process of the attempt",
    JobEvent.FAIL_LAUNCH: "the attempt could not be started; the job backs off",
    JobEvent.GIVE_UP: "it can never start (launches exhausted, a dependency that failed)",
    JobEvent.EVICT: "preempted, or stopped by the platform for another reason",
    JobEvent.CANCEL: "somebody asked for the end",
    JobEvent.RELEASE: "every process of the attempt has left: its quota is free",
    JobEvent.REQUEUE: "the attempt ended by itself and the job wants another",
    JobEvent.FINISH: "the attempt ended by itself and the job is done",
}


def page() -> str:
    lines = [
        "# The life of a job",
        "",
        "Drawn from the table in `src/tenure/domain/lifecycle.py`; do not edit.  SQL guards and tests are read off the same table.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        f"    [*] --> {JobState.QUEUED}: submit",
    ]
    arrows: dict[tuple[JobState, JobState], list[str]] = {}
    for (state, event), after in TRANSITIONS.items():
        arrows.setdefault((state, after), []).append(event)
    lines += [f"    {a} --> {b}: {', '.join(events)}" for (a, b), events in arrows.items()]
    lines += [f"    {state} --> [*]" for state in JobState if state in TERMINAL]
    lines += ["```", "", "| state | means | holds quota |", "|---|---|---|"]
    lines += [f"| `{s}` | {MEANING[s]} | {'yes' if s in HOLDS_QUOTA else 'no'} |" for s in JobState]
    lines += ["", "| event | means | from | to |", "|---|---|---|---|"]
    for event in JobEvent:
        moves = [(state, after) for (state, e), after in TRANSITIONS.items() if e is event]
        froms = ", ".join(f"`{state}`" for state, _ in moves)
        tos = ", ".join(dict.fromkeys(f"`{after}`" for _, after in moves))
        lines.append(f"| `{event}` | {EVENT[event]} | {froms} | {tos} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
