"""A study's parameters, read off its function: a dataclass, or plain keyword parameters.

Values come from defaults, a configuration file and the command line, in this order, and are checked against the declared
types.  What is wrong is said with the parameter's name, what was given and what would work.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

__all__ = ["REQUIRED", "Parameter", "Spec", "SpecError", "convert", "read_file"]

REQUIRED: Any = object()
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class SpecError(ValueError):
    """The parameters cannot be used as given; the text says which, and what would work."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter.  `name` is dotted where a dataclass lies within a dataclass (`optimizer.rate`)."""

    name: str
    hint: Any
    default: Any
    help: str = ""


class Spec:
    """What a study function takes.  Raises TypeError for a function that no command line could call."""

    def __init__(self, function: Callable[..., object], run_type: type) -> None:
        self.run_parameter: str | None = None
        self.dataclass: type | None = None
        self._spec_parameter: str | None = None
        self.parameters: tuple[Parameter, ...]
        name = getattr(function, "__name__", "study")
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except NameError as problem:
            raise TypeError(
                f"the annotations of {name}() cannot be read: {problem}; define the types before it"
            ) from None
        plain: list[Parameter] = []
        for parameter in inspect.signature(function).parameters.values():
            hint = hints.get(parameter.name, str if parameter.default is parameter.empty else Any)
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise TypeError(f"{name}({parameter}): a study's parameters have names; * and / have none")
            if hint is run_type or parameter.name == "run":
                self.run_parameter = parameter.name
            elif isinstance(hint, type) and dataclasses.is_dataclass(hint) and parameter.default is parameter.empty:
                if self.dataclass is not None:
                    raise TypeError(f"{name}() takes two dataclasses; put one inside the other")
                self.dataclass, self._spec_parameter = hint, parameter.name
            else:
                default = REQUIRED if parameter.default is parameter.empty else parameter.default
                if hint is Any and default is not REQUIRED and default is not None:
                    hint = type(default)  # `epochs=5` says enough
                plain.append(Parameter(name=parameter.name, hint=hint, default=default, help=_help(hint)))
        if self.dataclass is not None and plain:
            raise TypeError(f"{name}() takes a dataclass and {plain[0].name!r}; make it a field of the dataclass")
        self.parameters = tuple(_fields(self.dataclass)) if self.dataclass is not None else tuple(plain)

    def build(self, values: Mapping[str, object]) -> Any:
        """The spec from plain values (nested mappings): the dataclass, or the keyword arguments as a dict.

        Raises SpecError.
        """
        if self.dataclass is not None:
            return _build(self.dataclass, values, "")
        known = {parameter.name: parameter for parameter in self.parameters}
        _refuse_unknown(values, known, "")
        built: dict[str, object] = {}
        for name, parameter in known.items():
            if name in values:
                built[name] = convert(values[name], parameter.hint, name)
            elif parameter.default is REQUIRED:
                raise SpecError(f"{name} is missing, and has no default")
            else:
                built[name] = parameter.default
        return built

    def arguments(self, built: Any) -> dict[str, object]:
        """The keyword arguments that hand `built` to the function."""
        return {self._spec_parameter: built} if self._spec_parameter is not None else dict(built)


def convert(value: object, hint: Any, where: str, *, text: bool = False) -> Any:
    """`value` as the type `hint` says.  `text`: it was typed by a person, so that `5` may be a number.

    Raises SpecError, naming `where`.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return convert(value, arguments[0], where, text=text)
    if origin in (Union, types.UnionType):
        return _convert_union(value, arguments, where, text=text)
    if hint is Any or hint is object:
        return value
    if hint is None or hint is type(None):
        if value is None or (text and str(value).lower() in ("none", "null", "")):
            return None
        raise _wrong(where, value, "none")
    if origin is Literal:
        for choice in arguments:
            if value == choice or (text and value == str(choice)):
                return choice
        raise _wrong(where, value, "one of " + ", ".join(map(str, arguments)))
    if origin in (list, set, frozenset, tuple) or hint in (list, tuple, set, frozenset):
        return _convert_many(value, hint, where, text=text)
    if origin is dict or hint is dict or (inspect.isclass(origin) and issubclass(origin, Mapping)):
        return _convert_mapping(value, arguments, where, text=text)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return value if isinstance(value, hint) else _build(hint, value, where)
    if inspect.isclass(hint):
        return _convert_scalar(value, hint, where, text=text)
    raise SpecError(f"{where}: the type {hint} cannot be given from outside; use numbers, text, lists or dataclasses")


def read_file(path: str) -> dict[str, object]:
    """Parameters from a `.json` or `.toml` file.  Raises SpecError."""
    import tomllib

    name = Path(path)
    try:
        if name.suffix == ".toml":
            with name.open("rb") as file:
                return tomllib.load(file)
        if name.suffix == ".json":
            value = json.loads(name.read_text(encoding="utf-8"))
        else:
            raise SpecError(f"{path}: a configuration is a .json or a .toml file")
    except OSError as problem:
        raise SpecError(f"{path}: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, ValueError) as problem:
        if isinstance(problem, SpecError):
            raise
        raise SpecError(f"{path}: {problem}") from None
    if not isinstance(value, dict):
        raise SpecError(f"{path}: a configuration is an object of parameters, not {type(value).__name__}")
    return value


def _fields(dataclass: type, prefix: str = "") -> list[Parameter]:
    hints = typing.get_type_hints(dataclass, include_extras=True)
    found: list[Parameter] = []
    for field in dataclasses.fields(dataclass):
        if not field.init:
            continue
        hint, name = hints[field.name], prefix + field.name
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            found += _fields(hint, f"{name}.")
            continue
        default = field.default
        if default is dataclasses.MISSING:
            default = REQUIRED if field.default_factory is dataclasses.MISSING else field.default_factory()
        found.append(Parameter(name=name, hint=hint, default=default, help=field.metadata.get("help") or _help(hint)))
    return found


def _build(dataclass: Any, values: object, where: str) -> Any:
    if not isinstance(values, Mapping):
        raise _wrong(where, values, f"an object with the fields of {dataclass.__name__}")
    hints = typing.get_type_hints(dataclass, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(dataclass) if field.init}
    _refuse_unknown(values, fields, where)
    built: dict[str, object] = {}
    for name, field in fields.items():
        path = f"{where}.{name}" if where else name
        if name in values:
            built[name] = convert(values[name], hints[name], path)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            if not dataclasses.is_dataclass(hints[name]):
                raise SpecError(f"{path} is missing, and has no default")
            built[name] = _build(hints[name], {}, path)
    try:
        return dataclass(**built)
    except SpecError:
        raise
    except (TypeError, ValueError) as problem:  # the dataclass's own checks
        raise SpecError(f"{where + ': ' if where else ''}{problem}") from None


def _convert_union(value: object, arguments: tuple[Any, ...], where: str, *, text: bool) -> Any:
    if type(None) in arguments and (value is None or (text and str(value).lower() in ("none", "null"))):
        return None
    kinds = [argument for argument in arguments if argument is not type(None)]
    for kind in kinds:
        if not text and inspect.isclass(kind) and type(value) is kind:
            return value
    for kind in kinds:
        try:
            return convert(value, kind, where, text=text)
        except SpecError:
            if len(kinds) == 1:
                raise
    raise _wrong(where, value, " or ".join(_type_name(argument) for argument in arguments))


def _convert_many(value: object, hint: Any, where: str, *, text: bool) -> Any:
    kind = get_origin(hint) or hint
    arguments = get_args(hint)
    if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
        raise _wrong(where, value, "a list")
    items = list(value)
    if kind is tuple and arguments and arguments[-1] is not Ellipsis:
        if len(items) != len(arguments):
            raise _wrong(where, value, f"exactly {len(arguments)} values")
        hints = list(arguments)
    else:
        hints = [arguments[0] if arguments else (str if text else Any)] * len(items)
    return kind(
        convert(item, each, f"{where}[{i}]", text=text) for i, (item, each) in enumerate(zip(items, hints, strict=True))
    )


def _convert_mapping(value: object, arguments: tuple[Any, ...], where: str, *, text: bool) -> dict[Any, Any]:
    if text and isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise _wrong(where, value, "a JSON object") from None
    if not isinstance(value, Mapping):
        raise _wrong(where, value, "an object")
    key_hint, item_hint = arguments or (Any, Any)
    return {
        convert(key, key_hint, f"{where} key", text=True): convert(item, item_hint, f"{where}.{key}")
        for key, item in value.items()
    }


def _convert_scalar(value: object, hint: type, where: str, *, text: bool) -> Any:
    if issubclass(hint, enum.Enum):
        for member in hint:
            known = (member.value, member.name, str(member.value) if text else member.name)
            if value is member or value in known:
                return member
        raise _wrong(where, value, "one of " + ", ".join(str(member.value) for member in hint))
    if issubclass(hint, Path):
        if isinstance(value, str | Path):
            return hint(value)
    elif hint is bool:
        if isinstance(value, bool):
            return value
        if text and str(value).lower() in _TRUE + _FALSE:
            return str(value).lower() in _TRUE
    elif hint in (int, float) and text:
        try:
            return hint(str(value))
        except ValueError:
            pass
    elif hint is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if value in ("NaN", "Infinity", "-Infinity"):  # as a record writes them
            return float(str(value))
    elif hint is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    elif isinstance(value, hint):
        return value
    elif text and hint is not str:
        raise SpecError(f"{where}: the type {_type_name(hint)} cannot be given from outside")
    raise _wrong(where, value, _type_name(hint))


def _refuse_unknown(values: Mapping[str, object], known: Mapping[str, object], where: str) -> None:
    for name in values:
        if name not in known:
            path = f"{where}.{name}" if where else str(name)
            near = difflib.get_close_matches(str(name), list(known), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known) or 'none'}"
            raise SpecError(f"{path} is no parameter of this study{hint}")


def _wrong(where: str, value: object, wanted: str) -> SpecError:
    return SpecError(f"{where}: {value!r} is not {wanted}")


def _type_name(hint: Any) -> str:
    names: dict[Any, str] = {
        int: "a whole number",
        float: "a number",
        str: "text",
        bool: "true or false",
        Path: "a path",
    }
    return names.get(hint) or ("none" if hint is type(None) else str(getattr(hint, "__name__", hint)))


def _help(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        return next((said for said in get_args(hint)[1:] if isinstance(said, str)), "")
    return ""
