"""Types of single values: text, words, numbers, flags, amounts, durations.

A type reads a value at a `Spot` and returns what it means, or None where it is wrong (and then the spot has been told).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tenure.domain.amounts import format_quantity, parse_quantity

from .documents import Scalar, Value
from .durations import parse_go_duration
from .spelling import nearest
from .spots import Spot, describe

__all__ = ["Amount", "AmountText", "Choice", "Duration", "Flag", "Number", "Text", "amount_at"]

INT32 = (-(2**31), 2**31 - 1)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """Go's duration (30s, 5m, 1h30m), in seconds.  `positive`: 0 is too short."""

    positive: bool = False

    def read(self, value: Value, spot: Spot) -> float | None:
        if not isinstance(value, Scalar) or not isinstance(value.value, str):
            spot.error(f"expected a duration such as 30s, 5m or 1h, got {describe(value)}")
            return None
        try:
            seconds = parse_go_duration(value.value)
        except ValueError as error:
            spot.error(str(error))
            return None
        if self.positive and seconds <= 0:
            spot.error(f"{value.value} is too short; it must be more than 0, such as 30s")
            return None
        return seconds
