"""Two runs side by side: what `runs diff` prints."""

from __future__ import annotations

from .record import Record

__all__ = ["diff"]

_MISSING = object()


def diff(a: Record, b: Record) -> dict[str, object]:
    """Config, code, environment, results and metrics of two runs, key by key.

    Each part is a list of `{key, a, b, same}` in the order of the keys; a key that one run lacks has None there, and
    `only` names the run that has it.  `different` counts the keys that are not the same, for each part.
    """
    parts: dict[str, tuple[object, object]] = {
        "config": (a.config, b.config),
        "code": ({**a.code, "imported": a.imported}, {**b.code, "imported": b.imported}),
        "environment": (a.environment, b.environment),
        "results": (a.results, b.results),
        "metrics": (_last(a), _last(b)),
        "outcome": ({"outcome": a.outcome}, {"outcome": b.outcome}),
    }
    compared = {name: _side_by_side(_flat(left), _flat(right)) for name, (left, right) in parts.items()}
    different = {name: sum(not row["same"] for row in rows) for name, rows in compared.items()}
    return {"a": a.run_id, "b": b.run_id, **compared, "different": different}


def _last(record: Record) -> dict[str, object]:
    return {name: metric["last"] for name, metric in record.metrics.items()}


def _side_by_side(a: dict[str, object], b: dict[str, object]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for key in sorted(a.keys() | b.keys()):
        left, right = a.get(key, _MISSING), b.get(key, _MISSING)
        row: dict[str, object] = {
            "key": key,
            "a": None if left is _MISSING else left,
            "b": None if right is _MISSING else right,
            "same": left is not _MISSING and right is not _MISSING and left == right,
        }
        if left is _MISSING or right is _MISSING:
            row["only"] = "b" if left is _MISSING else "a"
        rows.append(row)
    return rows


def _flat(value: object, prefix: str = "") -> dict[str, object]:
    if not isinstance(value, dict):
        return {prefix: value}
    flat: dict[str, object] = {}
    for key, item in value.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(item, dict):
            flat.update(_flat(item, name))
        else:
            flat[name] = item
    return flat
