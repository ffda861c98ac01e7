"""`tenure runs`: the records that attempts wrote of themselves."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from .call import Call
from .grammar import Option, Usage, Verb, nearest
from .render import age, emit, plain, table

VERB = Verb(
    usage="runs ls | show RUN | diff RUN RUN",
    options=(
        Option(names=("--job",), value="ID", help="of one job"),
        Option(names=("--project",), value="NAME", help="of one project"),
        Option(
            names=("--outcome",),
            value="OUTCOME",
            choices=("completed", "failed", "cancelled", "interrupted"),
            help="that ended so",
        ),
        Option(names=("--limit", "-n"), value="N", help="the newest N (default 50)"),
        Option(names=("--all", "-a"), help="all of them"),
    ),
    positionals=(0, 3),
    details="A run is named after its job and attempt: 37.1.  `@` and a job's id mean its newest run.",
    examples=(
        ("tenure runs show @", "the newest job's record"),
        ("tenure runs diff 37.1 38.1", "what two runs differ in"),
    ),
)

WORDS = ("ls", "show", "diff")


def run(call: Call) -> int:
    word, *rest = call.parsed.positionals or ["ls"]
    wanted = {"ls": 0, "list": 0, "show": 1, "diff": 2}.get(word)
    if wanted is None:
        raise Usage(f"{word!r}: there is ls, show RUN and diff RUN RUN{nearest(word, WORDS)}")
    if len(rest) != wanted:
        raise Usage(f"`runs {word}` takes {wanted or 'no'} run{'' if wanted == 1 else 's'}, not {len(rest)}")
    if wanted == 0:
        return _ls(call)
    names = [quote(_run_id(call, name), safe="") for name in rest]
    if wanted == 1:
        record = call.client.get(f"/runs/{names[0]}")
        return _print(call, record, _record(record))
    diff = call.client.get(f"/runs/{names[0]}/diff/{names[1]}")
    return _print(call, diff, _differences(diff))


def _run_id(call: Call, name: str) -> str:
    """A run's own name, or that of a job's newest run."""
    if name != "last" and not name.startswith("@") and "." in name:
        return name
    job = call.job_id(name)
    if job == name and not name.replace("_", "").isdecimal():
        return name  # a run with no platform has a name of its own
    shown = call.show(job)
    if not shown.get("run_id"):
        raise Usage(
            f"job {job} has no run yet" if "tasks" not in shown else f"{job} is an array; name a task, such as {job}_1"
        )
    return str(shown["run_id"])


def _ls(call: Call) -> int:
    parsed = call.parsed
    limit = None if parsed.on("all") else parsed.count("limit") or 50
    job = parsed.text("job")
    query = {
        "job": call.job_id(job) if job else None,
        "project": parsed.text("project"),
        "outcome": parsed.text("outcome"),
    }
    runs: list[Any] = []
    cursor: str | None = None
    while True:
        page = call.client.get("/runs", **query, limit=min(limit or 1000, 1000), cursor=cursor)
        runs.extend(page["items"])
        cursor = page.get("next")
        if not cursor or (limit is not None and len(runs) >= limit):
            break
    runs = runs[:limit]
    if call.structured:
        emit(runs, call.form)
    elif call.form == "name":
        for item in runs:
            print(_name(item))
    else:
        head = ["RUN", "JOB", "NAME", "OUTCOME", "AGE", "TIME", "REPLACES", "RESULTS"]
        print("\n".join(table(head, [_row(item) for item in runs])))
    return 0


def _name(item: dict[str, Any]) -> str:
    return str(item.get("run_id") or item.get("id"))


def _row(item: dict[str, Any]) -> list[object]:
    began, ended = item.get("opened_at"), item.get("closed_at")
    results = ", ".join(f"{key}={value}" for key, value in (item.get("results") or {}).items())
    outcome = item.get("outcome") or "open"
    return [
        _name(item),
        item.get("job_id"),
        item.get("name"),
        outcome,
        age(began),
        age(began, ended),
        item.get("retry_of"),
        results,
    ]


def _print(call: Call, document: Any, lines: list[str]) -> int:
    if call.structured:
        emit(document, call.form)
    elif call.form == "name":
        print(_name(document) if isinstance(document, dict) else document)
    else:
        print("\n".join(lines))
    return 0


def _record(record: dict[str, Any]) -> list[str]:
    """The record as its own keys, without what is only long (the environment's packages, hashes of every file)."""
    return _tree(record, hidden=("packages", "files", "metrics_files"))


def _differences(diff: dict[str, Any]) -> list[str]:
    """Section by section what differs, side by side; what is the same is only counted."""
    shown: list[str] = []
    for section, rows in diff.items():
        if not isinstance(rows, list):
            continue
        unlike = [row for row in rows if isinstance(row, dict) and not row.get("same")]
        same = len(rows) - len(unlike)
        shown.append(
            f"{section}: "
            + (f"{len(unlike)} differ" if unlike else "no difference")
            + (f", {same} the same" if same else "")
        )
        cells = [[row.get("key"), row.get("a"), row.get("b")] for row in unlike]
        shown += [f"  {line}" for line in table(["", diff["a"], diff["b"]], cells)] if cells else []
    return shown or ["no difference"]


def _tree(value: Any, *, depth: int = 0, hidden: tuple[str, ...] = ()) -> list[str]:
    """A document as indented lines: one fact each."""
    pad = "  " * depth
    lines: list[str] = []
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in pairs:
        name = plain(key) if isinstance(value, dict) else "-"
        colon = ":" if isinstance(value, dict) else ""
        if name in hidden and isinstance(item, (dict, list)):
            lines.append(f"{pad}{name}: {len(item)} of them (`-o json` shows them)")
        elif isinstance(item, (dict, list)) and item:
            if isinstance(item, list) and all(not isinstance(part, (dict, list)) for part in item):
                lines.append(f"{pad}{name}{colon} {', '.join(plain(part) for part in item)}")
            else:
                lines += [f"{pad}{name}{colon}", *_tree(item, depth=depth + 1, hidden=hidden)]
        elif item not in (None, "", {}, []):
            lines.append(f"{pad}{name}{colon} {plain(item)}")
    return lines or [f"{pad}nothing"]
