"""A small language for saying which fields an object has, and a checker that collects every problem.

A type reads a value at a `Spot` and returns what it means, or None where it is absent or wrong (and then the spot has
been told).  Semantic rules therefore run over what was sound, and all problems of a file come out together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tenure.domain.amounts import format_quantity, parse_quantity
from tenure.domain.errors import Problem

from .documents import Entry, Listing, Mapped, Scalar, Value
from .spelling import nearest

__all__ = [
    "INT32",
    "Amount",
    "AmountText",
    "Anything",
    "Choice",
    "Field",
    "Flag",
    "Items",
    "ListOf",
    "MapOf",
    "Number",
    "Object",
    "Pairs",
    "Record",
    "Refused",
    "Spot",
    "Text",
    "Type",
    "Unread",
    "amount_at",
]

INT32 = (-(2**31), 2**31 - 1)


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


class Type(Protocol):
    def read(self, value: Value, spot: Spot) -> Any:
        """What `value` means, or None after telling the spot."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Text; `pattern` and `rule` say what it must look like."""

    pattern: re.Pattern[str] | None = None
    rule: str = ""
    max_length: int | None = None

    def read(self, value: Value, spot: Spot) -> str | None:
        if not isinstance(value, Scalar):
            spot.error(f"expected text, got {describe(value)}")
            return None
        if not isinstance(value.value, str):
            spot.error(f'expected text, got {describe(value)}; put it in quotes: "{value.text}"')
            return None
        if self.pattern is not None and not self.pattern.fullmatch(value.value):
            spot.error(f"{describe(value)} does not fit; {self.rule}")
            return None
        if self.max_length is not None and len(value.value) > self.max_length:
            spot.error(f"{len(value.value)} characters are too many; at most {self.max_length}")
            return None
        return value.value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words.  `old` maps spellings of an earlier version to today's."""

    words: tuple[str, ...]
    old: Mapping[str, str] = field(default_factory=dict)

    def read(self, value: Value, spot: Spot) -> str | None:
        word = value.value if isinstance(value, Scalar) else None
        if isinstance(word, str):
            word = self.old.get(word, word)
            if word in self.words:
                return word
        near = nearest(word, self.words) if isinstance(word, str) and word else ""
        choices = near if near.startswith("; did") else ""
        spot.error(f"expected one of {', '.join(self.words)}; got {describe(value)}{choices}")
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A whole number within bounds."""

    low: int = INT32[0]
    high: int = INT32[1]

    def read(self, value: Value, spot: Spot) -> int | None:
        if not isinstance(value, Scalar) or not isinstance(value.value, int) or isinstance(value.value, bool):
            hint = ""
            if isinstance(value, Scalar) and isinstance(value.value, str) and value.value.lstrip("-").isdecimal():
                hint = "; write it without quotes"
            spot.error(f"expected a whole number, got {describe(value)}{hint}")
            return None
        if not self.low <= value.value <= self.high:
            spot.error(f"{value.value} is out of range; {self.low} to {self.high} would work")
            return None
        return value.value


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false."""

    def read(self, value: Value, spot: Spot) -> bool | None:
        if isinstance(value, Scalar) and isinstance(value.value, bool):
            return value.value
        spot.error(f"expected true or false, got {describe(value)}")
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A Kubernetes quantity, as the integer of `domain.amounts` for `resource` (milli for cpu)."""

    resource: str = ""
    low: int | None = 0

    def read(self, value: Value, spot: Spot) -> int | None:
        text = AmountText().read(value, spot)
        return None if text is None else amount_at(text, spot, resource=self.resource, low=self.low)


@dataclass(frozen=True, slots=True)
class AmountText:
    """A quantity kept as written, because a sibling field decides its unit."""

    def read(self, value: Value, spot: Spot) -> str | None:
        text = amount_text(value)
        if text is None:
            spot.error(f"expected an amount such as 2, 500m or 10Gi, got {describe(value)}")
        return text


def amount_at(text: str, spot: Spot, *, resource: str = "", low: int | None = 0) -> int | None:
    """The integer that quota arithmetic uses, or None after telling the spot."""
    try:
        amount = parse_quantity(text, resource=resource)
    except ValueError as e:
        spot.error(str(e))
        return None
    if low is not None and amount < low:
        spot.error(f"{text} is too small; at least {format_quantity(low, resource=resource)} would work")
        return None
    return amount


def amount_text(value: Value) -> str | None:
    """The spelling of a quantity: text or a number."""
    if not isinstance(value, Scalar) or value.value is None or isinstance(value.value, bool):
        return None
    return str(value.value) if isinstance(value.value, int) else value.text


@dataclass(frozen=True, slots=True)
class Anything:
    """Accepted and not looked at (`status`, and what Kubernetes itself keeps in metadata)."""

    def read(self, value: Value, spot: Spot) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Unread:
    """A field that is known and has no effect here: told as a warning."""

    message: str = "has no effect on one machine"

    def read(self, value: Value, spot: Spot) -> None:
        spot.warn(self.message)


@dataclass(frozen=True, slots=True)
class Refused:
    """A field that is known and would change the meaning if it were dropped: told as an error."""

    message: str

    def read(self, value: Value, spot: Spot) -> None:
        if isinstance(value, Listing | Mapped) and not (value.items if isinstance(value, Listing) else value.entries):
            return
        spot.error(self.message)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf:
    item: Type
    low: int = 0
    high: int | None = None
    unique: bool = False  # of plain values: each may stand once

    def read(self, value: Value, spot: Spot) -> Items | None:
        if not isinstance(value, Listing):
            spot.error(f"expected a list, got {describe(value)}")
            return None
        if self.high is not None and len(value.items) > self.high:
            spot.error(f"{len(value.items)} entries are too many; at most {self.high}")
        if len(value.items) < self.low:
            spot.error(f"{len(value.items)} entries are too few; at least {self.low}")
        items = Items()
        items.whole = len(value.items) >= self.low
        for i, child in enumerate(value.items):
            at = spot.item(i, child.line)
            read = self.item.read(child, at)
            if read is None:
                items.whole = False
                continue
            if self.unique and read in items:
                at.error(f"{read} stands here twice")
                items.whole = False
            items.append(read)
            items.spots.append(at)
        return items


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOf:
    """A mapping with free keys.  `value_of` picks the type of a value by its key."""

    value_of: Callable[[str], Type]
    key: Type | None = None
    high: int | None = None

    def read(self, value: Value, spot: Spot) -> Pairs | None:
        if not isinstance(value, Mapped):
            spot.error(f"expected a mapping, got {describe(value)}")
            return None
        if self.high is not None and len(value.entries) > self.high:
            spot.error(f"{len(value.entries)} entries are too many; at most {self.high}")
        pairs = Pairs()
        for entry in value.entries:
            at = spot.entry(entry)
            if self.key is not None and self.key.read(Scalar(entry.line, entry.key, entry.key), at) is None:
                continue
            read = self.value_of(entry.key).read(entry.value, at)
            if read is not None:
                pairs[entry.key] = read
                pairs.spots[entry.key] = at
        return pairs


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object.  `now` is today's name of an old spelling, read as if it stood there."""

    type: Type
    required: bool = False
    now: str | None = None


class Record:
    """An object as read: its sound fields, and the spot of each field that was given."""

    __slots__ = ("_spots", "_values", "spot")

    def __init__(self, spot: Spot) -> None:
        self.spot = spot
        self._values: dict[str, Any] = {}
        self._spots: dict[str, Spot] = {}

    def put(self, name: str, value: Any, spot: Spot) -> None:
        self._spots[name] = spot
        if value is not None:
            self._values[name] = value

    def get(self, name: str, default: Any = None) -> Any:
        """The field's meaning; `default` where it is absent or was wrong."""
        return self._values.get(name, default)

    def given(self, name: str) -> bool:
        """Did it stand in the file, sound or not?"""
        return name in self._spots

    def at(self, name: str) -> Spot:
        """Where the field stands, or where it would."""
        return self._spots.get(name) or self.spot.child(name)

    def record(self, name: str) -> Record:
        """A nested object; an empty one where it is absent."""
        value = self._values.get(name)
        return value if isinstance(value, Record) else Record(self.at(name))


class Object:
    """An object with known fields.  Anything else is refused with the nearest right name.

    A field whose value is null counts as absent, as in Kubernetes.
    """

    def __init__(self, fields: Mapping[str, Type | Field]) -> None:
        self.fields = {k: f if isinstance(f, Field) else Field(f) for k, f in fields.items()}

    def read(self, value: Value, spot: Spot) -> Record | None:
        if not isinstance(value, Mapped):
            spot.error(f"expected a mapping, got {describe(value)}")
            return None
        record = Record(spot)
        for entry in value.entries:
            at = spot.entry(entry)
            known = self.fields.get(entry.key)
            if known is None:
                today = [n for n, f in self.fields.items() if f.now is None]
                at.error(f'unknown field "{entry.key}"{nearest(entry.key, today)}')
                continue
            if isinstance(entry.value, Scalar) and entry.value.value is None:
                continue
            name = known.now or entry.key
            if record.given(name):
                at.error(f'"{entry.key}" and "{name}" say the same thing; keep "{name}"')
                continue
            record.put(name, known.type.read(entry.value, at), at)
        for name, known in self.fields.items():
            if known.required and not record.given(name):
                spot.child(name).error("is required and missing")
        return record
