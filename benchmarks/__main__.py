"""`python -m benchmarks [NAME …] [--quick] [--no-peers] [--dir DIR] [--json FILE]`: measure, print the table, exit 1 on a miss."""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from .rig import Plan, Row, load, machine, scratch

FIGURES = ("latency", "ending", "array", "preempt", "ps", "memory", "submit_rate", "engine", "gateway", "whatif")


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m benchmarks", description="Every figure, beside its peers.")
    options.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FIGURES)}; all without any")
    options.add_argument("--quick", action="store_true", help="a tenth of the samples: a look, not a result")
    options.add_argument("--no-peers", action="store_true", help="ours alone")
    options.add_argument(
        "--dir", metavar="DIR", type=Path, help="where the homes lie; the temporary directory otherwise"
    )
    options.add_argument("--json", metavar="FILE", type=Path, help="write what was measured")
    asked = options.parse_args()
    if unknown := set(asked.names) - set(FIGURES):
        options.error(f"no figure is called {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    started = datetime.now(UTC).isoformat(timespec="seconds")
    measured: list[tuple[str, str, Row]] = []
    with scratch(asked.dir) as folder:
        plan = Plan(quick=asked.quick, peers=not asked.no_peers, scratch=folder)
        where = machine(folder)
        print(f"{started}  {where}\nbefore: {load()}", flush=True)
        for name in asked.names or FIGURES:
            busy, begun = load(), time.monotonic()
            print(f"{name}: {busy}", file=sys.stderr, flush=True)
            try:
                rows = list(importlib.import_module(f"{__package__}.{name}").measure(plan))
            except Exception as error:
                rows = [Row(what=f"{name} failed: {error!r:.200}", unit="", ours=None, reach=0)]
            print(f"{name}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
            measured += [(name, busy, row) for row in rows]
    print(table([row for _, _, row in measured]))
    print(f"after: {load()}")
    if asked.json:
        asked.json.write_text(json.dumps(document(started, where, asked.quick, measured), indent=1) + "\n")
    missed = [row.what for _, _, row in measured if row.reached is False]
    if missed:
        print("missed: " + "; ".join(missed))
    return 1 if missed else 0


def document(started: str, where: str, quick: bool, measured: list[tuple[str, str, Row]]) -> dict[str, object]:
    rows = [
        {
            "figure": name,
            "load": busy,
            "what": row.what,
            "unit": row.unit,
            "reach": row.reach,
            "ours": row.ours,
            "peers": dict(row.peers),
            "reached": row.reached,
            "note": row.note,
        }
        for name, busy, row in measured
    ]
    return {"at": started, "machine": where, "quick": quick, "rows": rows}


def table(rows: list[Row]) -> str:
    """what, reach, ours, peers, ratio (ours to the best peer; below 1 is better where less is better), reached."""
    lines = [("what", "reach", "ours", "peers", "ratio", "reached")]
    reasons: dict[str, str] = {}
    notes = []
    for row in rows:
        peers, ratio = [], ""
        numbers = [p for p in row.peers.values() if isinstance(p, float)]
        for peer, value in row.peers.items():
            if isinstance(value, float):
                peers.append(f"{peer} {amount(value)}")
            else:
                peers.append(f"{peer} -")
                reasons[peer] = value
        if numbers and row.ours is not None:
            best = max(numbers) if row.more else min(numbers)
            ratio = f"{row.ours / best:.2f}" if best else ""
        bound = "" if row.reach is None else f"{'>=' if row.more else '<='} {row.reach:g} {row.unit}"
        verdict = {None: "", True: "yes", False: "NO"}[row.reached]
        ours = "-" if row.ours is None else f"{amount(row.ours)} {row.unit}"
        lines.append((row.what, bound, ours, ", ".join(peers), ratio, verdict))
        if row.note:
            notes.append(f"{row.what}: {row.note}")
    widths = [max(len(line[i]) for line in lines) for i in range(6)]
    drawn = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    drawn.insert(1, "  ".join("-" * width for width in widths))
    drawn += [f"{peer}: not measured, {why}" for peer, why in reasons.items()]
    return "\n".join(["", *drawn, *notes, ""])


def amount(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}" if value < 10 else f"{value:.1f}"


if __name__ == "__main__":
    sys.exit(main())
