"""`tenure queue`: every cluster queue with what it owns, uses, borrows and lends, and who waits, in order, and why."""

from __future__ import annotations

from typing import Any

from tenure.domain.amounts import format_quantity

from .call import Call
from .cards import claims
from .grammar import Option, Usage, Verb, nearest
from .render import age, emit, plain, table

VERB = Verb(
    usage="queue [NAME] [flags]",
    options=(Option(names=("--watch", "-w"), help="stay, and draw again at every event"),),
    positionals=(0, 1),
    what="cluster queue",
    details="Windows that have been claimed come first.  The first of a list is the next that is considered; a job that is held or waits for another has no number.",
)


def run(call: Call) -> int:
    if call.parsed.on("watch"):
        from .live import redraw

        return redraw(call, lambda: lines(_queues(call), call.client.get("/cards")))
    queues = _queues(call)
    if call.structured:
        emit(queues, call.form)
    elif call.form == "name":
        for queue in queues:
            for job in queue["jobs"]:
                print(job["id"])
    else:
        print("\n".join(lines(queues, call.client.get("/cards"))))
    return 0


def _queues(call: Call) -> list[Any]:
    queues: list[Any] = call.client.get("/queues")
    if not call.parsed.positionals:
        return queues
    wanted = call.parsed.positionals[0]
    found = [queue for queue in queues if queue["name"] == wanted]
    if not found:
        names = [str(queue["name"]) for queue in queues]
        raise Usage(
            f"there is no cluster queue {wanted!r}{nearest(wanted, names)} (there is {', '.join(names) or 'none'})"
        )
    return found


def lines(queues: list[Any], cards: list[Any]) -> list[str]:
    shown = [f"card {card['id']}: {plain(line)}" for card in cards for line in claims(card)]
    for queue in queues:
        shown += [*([""] if shown else []), _title(queue)]
        shown += [f"  {line}" for line in _resources(queue["resources"])]
        if queue["jobs"]:
            shown += ["", *(f"  {line}" for line in _waiting(queue["jobs"]))]
            left = queue["pending"] - len(queue["jobs"])
            shown += [f"  and {left} more"] if left > 0 else []
    return shown or ["there are no cluster queues"]


def _title(queue: dict[str, Any]) -> str:
    cohort = f", cohort {queue['cohort']}" if queue.get("cohort") else ""
    stopped = f", stopped ({queue['stop_policy']})" if queue.get("stop_policy") not in (None, "None") else ""
    waits = f"{queue['pending']} wait" if queue["pending"] != 1 else "1 waits"
    return f"{plain(queue['name'])}{cohort}{stopped}: {waits}" + (
        f" (from {', '.join(queue['local_queues'])})" if queue.get("local_queues") else ""
    )


def _resources(resources: list[Any]) -> list[str]:
    rows = []
    for part in resources:
        amounts = [
            format_quantity(part[key], resource=part["resource"]) for key in ("nominal", "used", "borrowed", "lent")
        ]
        limit = part.get("borrowing_limit")
        rows.append(
            [
                part["flavor"],
                part["resource"],
                *amounts,
                "-" if limit is None else format_quantity(limit, resource=part["resource"]),
            ]
        )
    return table(["FLAVOR", "RESOURCE", "NOMINAL", "USED", "BORROWED", "LENT", "LIMIT"], rows)


def _waiting(jobs: list[Any]) -> list[str]:
    rows = []
    for job in jobs:
        place = job.get("position")
        reason = ": ".join(str(part) for part in (job.get("reason"), job.get("message")) if part)
        rows.append(["-" if place is None else place + 1, job["id"], job.get("name"), job.get("priority_class") or job.get("priority"), job.get("owner"), age(job.get("submitted_at")), reason])  # fmt: skip
    return table(["#", "ID", "NAME", "PRIORITY", "OWNER", "AGE", "REASON"], rows)
