"""A small language for saying which fields an object has, and a checker that collects every problem.

A type reads a value at a `Spot` and returns what it means, or None where it is absent or wrong (and then the spot has
been told).  Semantic rules therefore run over what was sound, and all problems of a file come out together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .documents import Listing, Mapped, Scalar, Value
from .spelling import nearest
from .spots import Items, Pairs, Spot, describe

__all__ = ["Anything", "Field", "ListOf", "MapOf", "Object", "Record", "Refused", "Type", "Unread"]


class Type(Protocol):
    def read(self, value: Value, spot: Spot) -> Any:
        """What `value` means, or None after telling the spot."""


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
