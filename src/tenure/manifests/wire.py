"""A `JobSpec` as a plain JSON object, and back.  The ledger's spec column and the REST door speak it.

Fields that are at their default are left out (`full=True` writes them all); reading fills them in.  Unknown fields are
refused with the nearest right name, wrong types with the field's path.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any

from tenure.domain.errors import InvalidRequest
from tenure.domain.job import JobSpec

from .spelling import nearest

__all__ = ["spec_from_json", "spec_to_json"]


def spec_to_json(spec: JobSpec, *, full: bool = False) -> dict[str, Any]:
    """A dict of JSON's own types, in the order of the fields."""
    return _dump(spec, full)


def spec_from_json(data: object) -> JobSpec:
    """The inverse of `spec_to_json`.  Raises InvalidRequest; its `field` names the part that is wrong."""
    try:
        spec = _reader(JobSpec)(data, "")
    except RecursionError:
        raise InvalidRequest("the job is nested too deep to read") from None
    assert isinstance(spec, JobSpec)
    return spec


def _dump(value: Any, full: bool) -> dict[str, Any]:
    out: dict[str, Any] = {}
    kind: type = type(value)
    for field, default in _fields(kind):
        item = getattr(value, field)
        if full or item != default:
            out[field] = _plain(item, full)
    return out


def _plain(value: Any, full: bool) -> Any:
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple | list):
        return [_plain(item, full) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item, full) for key, item in value.items()}
    return _dump(value, full)


_NONE_YET = object()


@cache
def _fields(kind: type) -> tuple[tuple[str, Any], ...]:
    """Names and defaults; a required field's default equals nothing."""
    return tuple((f.name, _default(f)) for f in dataclasses.fields(kind))


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return _NONE_YET


Reader = Callable[[object, str], Any]


def _wrong(path: str, wanted: str, value: object) -> InvalidRequest:
    got = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}.get(type(value))
    return InvalidRequest(
        f"{path or 'the job'}: expected {wanted}, got {got or type(value).__name__}", field=path or None
    )


@cache
def _reader(hint: Any) -> Reader:
    """How a value of the type `hint` is read.  Built once per type."""
    if isinstance(hint, typing.NewType):
        return _reader(hint.__supertype__)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in {types.UnionType, typing.Union}:
        return _optional(_reader(next(a for a in args if a is not type(None))))
    if origin is tuple:
        return _listed(_reader(args[0]))
    if origin is not None and issubclass(origin, Mapping):
        return _mapped(_reader(args[1]))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _worded(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _object(hint)
    return _PLAIN[hint]


def _optional(inner: Reader) -> Reader:
    return lambda value, path: None if value is None else inner(value, path)


def _listed(inner: Reader) -> Reader:
    def read(value: object, path: str) -> Any:
        if not isinstance(value, list | tuple):
            raise _wrong(path, "a list", value)
        return tuple(inner(item, f"{path}[{i}]") for i, item in enumerate(value))

    return read


def _mapped(inner: Reader) -> Reader:
    def read(value: object, path: str) -> Any:
        if not isinstance(value, Mapping):
            raise _wrong(path, "an object", value)
        for key in value:
            if not isinstance(key, str):
                raise _wrong(path, "names that are text", key)
        return {key: inner(item, f"{path}[{key!r}]") for key, item in value.items()}

    return read


def _worded(kind: type[Enum]) -> Reader:
    def read(value: object, path: str) -> Any:
        try:
            return kind(value)
        except ValueError:
            words = ", ".join(str(m.value) for m in kind)
            raise _wrong(path, f"one of {words}", value) from None

    return read


def _object(kind: type) -> Reader:
    hints = typing.get_type_hints(kind)
    required = {name for name, default in _fields(kind) if default is _NONE_YET}

    def read(value: object, path: str) -> Any:
        if not isinstance(value, Mapping):
            raise _wrong(path, "an object", value)
        prefix = f"{path}." if path else ""
        parts: dict[str, Any] = {}
        for key, item in value.items():
            if key not in hints:
                message = f'unknown field "{prefix}{key}"{nearest(str(key), hints)}'
                raise InvalidRequest(message, field=f"{prefix}{key}")
            parts[key] = _reader(hints[key])(item, prefix + key)
        for name in sorted(required - parts.keys()):
            raise InvalidRequest(f"{prefix}{name} is required and missing", field=prefix + name)
        return kind(**parts)

    return read


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise _wrong(path, "text", value)
    return value


def _flag(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(path, "true or false", value)
    return value


def _whole(value: object, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(path, "a whole number", value)
    if abs(value) >= 2**63:
        raise InvalidRequest(f"{path}: the number does not fit in 64 bits", field=path)
    return value


def _number(value: object, path: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong(path, "a number", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidRequest(f"{path}: the number is out of range", field=path)
    return number


def _free(value: object, path: str) -> object:
    """Any JSON, as it came (a fingerprint)."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_free(item, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {str(key): _free(item, f"{path}[{key!r}]") for key, item in value.items()}
    raise _wrong(path, "JSON", value)


_PLAIN: Mapping[Any, Reader] = {str: _text, bool: _flag, int: _whole, float: _number, object: _free}
