"""The policy directory: written once with the default, read by everybody, replaced as a whole or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tenure.domain.errors import Problem
from tenure.domain.model import Model
from tenure.domain.policy import Policy
from tenure.domain.workload import Card
from tenure.manifests.defaults import DefaultCard, default_policy
from tenure.manifests.policy import read_policy_dir

__all__ = ["HeldPolicy", "ensure_default", "read"]

MARK = ".default-for"  # beside the files: which default they are, so that an unedited one may follow the cards


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPolicy:
    current: Policy
    files: tuple[Path, ...]
    problems: tuple[Problem, ...] = ()
    models: Mapping[str, Model] = field(default_factory=dict)


def ensure_default(directory: Path, cards: Sequence[Card]) -> bool:
    """Write the default where there is no policy, or where only an older default stands unedited.  True if it wrote.

    Raises OSError where there is no room for all of it, and then nothing was changed.
    """
    wanted = default_policy(_totals(cards))
    mark = directory / MARK
    files = sorted(path for path in directory.glob("*") if path.suffix in (".yaml", ".yml", ".json"))
    if files and not (mark.exists() and _text(mark) == _signature({p.name: _text(p) for p in files})):
        return False
    if {p.name: _text(p) for p in files} == dict(wanted):
        return False
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    texts = {**wanted, MARK: _signature(wanted)}
    fresh = {directory / name: directory / f"{name}.new" for name in texts}
    try:
        for path, new in fresh.items():
            new.write_text(texts[path.name], encoding="utf-8")
    except OSError:
        for new in fresh.values():
            new.unlink(missing_ok=True)
        raise
    for path in files:
        path.unlink()
    for path, new in fresh.items():
        new.replace(path)
    return True


def read(directory: Path) -> HeldPolicy:
    """Raises InvalidManifest with every problem of every file."""
    reading = read_policy_dir(directory)
    files = tuple(sorted(p for p in directory.glob("*") if p.suffix in (".yaml", ".yml", ".json")))
    return HeldPolicy(current=reading.policy, files=files, problems=reading.problems, models=reading.models)


def _totals(cards: Sequence[Card]) -> list[DefaultCard]:
    flavors: dict[str, list[Card]] = {}
    for card in cards:
        flavors.setdefault(card.flavor, []).append(card)
    return [
        DefaultCard(flavor=name, shares=sum(c.shares for c in group), memory=sum(c.memory for c in group))
        for name, group in flavors.items()
    ]


def _signature(files: Mapping[str, str]) -> str:
    return hashlib.sha256("\0".join(f"{n}\0{files[n]}" for n in sorted(files)).encode()).hexdigest()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
