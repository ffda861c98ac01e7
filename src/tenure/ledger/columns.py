"""Values to columns and back: JSON text, and text that both databases can hold.

Text from processes may hold anything; PostgreSQL refuses NUL and both refuse lone surrogates.  An end must be
recorded whatever a process printed, so such characters are replaced, never refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Any, TypeVar

from sqlalchemy import Boolean, Table, Text

__all__ = ["Columns", "clean", "digest_of", "from_json", "to_json"]

T = TypeVar("T")

to_json: Callable[[object], str] = json.JSONEncoder(separators=(",", ":")).encode
"""Compact and ASCII only: whatever a string holds, the text can be stored anywhere."""

_decode = json.JSONDecoder().decode


def from_json(text: str) -> Any:
    return {} if text == "{}" else _decode(text)


def clean(text: str) -> str:
    """The text with NUL and lone surrogates shown instead of held."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def digest_of(text: str) -> str:
    """The name of a content: sha256 in hex."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Columns:
    """How the values of one table are written and read."""

    def __init__(self, table: Table, *, enums: Mapping[str, type[StrEnum]]) -> None:
        self.names = tuple(column.name for column in table.columns)
        self._json = frozenset(c.name for c in table.columns if c.info.get("json"))
        self._text = frozenset(c.name for c in table.columns if isinstance(c.type, Text)) - self._json
        self._bool = frozenset(c.name for c in table.columns if isinstance(c.type, Boolean))
        self._enums = tuple(enums.items())
        self._loads = tuple(n for n in self.names if n in self._json)

    def plain(self, name: str, value: object) -> object:
        """The value as it will read back: what the row, the diary and the database agree on."""
        if value is None:
            return None
        if name in self._json:
            return from_json(to_json(value))
        if name in self._text:
            if isinstance(value, str):
                return clean(str(value))
        elif isinstance(value, int):
            return bool(value) if name in self._bool else value
        raise TypeError(f"{name} cannot hold {value!r}")

    def stored(self, name: str, value: object) -> object:
        """A plain value as its column takes it."""
        return to_json(value) if name in self._json and value is not None else value

    def written(self, name: str, value: object) -> object:
        """`stored(plain(value))`, where nobody asks for the plain value in between."""
        return to_json(value) if name in self._json and value is not None else self.plain(name, value)

    def typed(self, values: dict[str, Any]) -> dict[str, Any]:
        """Plain values as a row holds them: words become members of their enum.  Changes and returns its argument."""
        for name, enum in self._enums:
            value = values.get(name)
            if value is not None:
                values[name] = enum(value)
        return values

    def read(self, row: Iterable[Any]) -> dict[str, Any]:
        """The values of a whole row, as selected with `select(table)`."""
        values = dict(zip(self.names, row, strict=True))
        for name in self._loads:
            text = values[name]
            if text is not None:
                values[name] = from_json(text)
        return self.typed(values)
