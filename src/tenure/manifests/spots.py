"""Where things stand in a file, and what is wrong there: the places that readers carry along with values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenure.domain.errors import Problem

from .documents import Entry, Listing, Mapped, Scalar, Value

__all__ = ["Items", "Pairs", "Spot", "describe"]


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a file, and the list that problems found there go to.

    With the node that stands there, it knows the lines of what is below it.
    """

    problems: list[Problem]
    file: str
    document: int | None
    line: int | None
    path: str = ""
    node: Value | None = field(default=None, repr=False)

    def error(self, message: str) -> None:
        self._add(message, "error")

    def warn(self, message: str) -> None:
        self._add(message, "warning")

    def _add(self, message: str, severity: str) -> None:
        self.problems.append(
            Problem(
                file=self.file,
                document=self.document,
                line=self.line,
                field=self.path,
                message=message,
                severity=severity,
            )
        )

    def child(self, name: str, line: int | None = None) -> Spot:
        entries = self.node.entries if isinstance(self.node, Mapped) else ()
        entry = next((e for e in entries if e.key == name), None)
        found = (entry.line, entry.value) if entry is not None else (None, None)
        return self._below(self._step(name), line or found[0], found[1])

    def entry(self, entry: Entry) -> Spot:
        """The child for an entry at hand: a mapping with many is walked once, not once for each."""
        return self._below(self._step(entry.key), entry.line, entry.value)

    def _step(self, name: str) -> str:
        plain = re.fullmatch(r"[A-Za-z0-9_-]+", name) is not None
        return self.path + ((f".{name}" if self.path else name) if plain else f'["{name}"]')

    def item(self, index: int, line: int | None = None) -> Spot:
        items = self.node.items if isinstance(self.node, Listing) else ()
        item = items[index] if index < len(items) else None
        return self._below(f"{self.path}[{index}]", line or (item.line if item is not None else None), item)

    def _below(self, path: str, line: int | None, node: Value | None) -> Spot:
        return Spot(self.problems, self.file, self.document, line or self.line, path, node)


def describe(value: Value) -> str:
    """What was found, in the words of a person."""
    match value:
        case Mapped():
            return "a mapping"
        case Listing():
            return "a list"
        case Scalar(value=bool(), text=text):
            return f"the boolean {text}"
        case Scalar(value=int() | float(), text=text):
            return f"the number {text}"
        case Scalar(value=None):
            return "nothing"
        case Scalar(text=text):
            return f'the text "{text if len(text) <= 60 else text[:60] + "…"}"'


class Items(list[Any]):
    """A list that remembers where each item came from, and whether every one was sound and in its place."""

    def __init__(self, values: Iterable[Any] = (), spots: Sequence[Spot] = ()) -> None:
        super().__init__(values)
        self.spots = list(spots)
        self.whole = True


class Pairs(dict[str, Any]):
    """A mapping that remembers where each key came from."""

    def __init__(self) -> None:
        super().__init__()
        self.spots: dict[str, Spot] = {}
