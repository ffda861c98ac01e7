"""YAML and JSON text as trees whose every node knows its line.

Promises: scalars mean what they mean to Kubernetes' own YAML reader (no sexagesimal numbers, no dates); duplicate keys
are refused; anchors and merge keys work, and neither a recursive alias nor an exploding one can hurt.  Nothing but
`Problem`s comes out of bad input.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from tenure.domain.errors import Problem

from .yaml_scalars import Refused, meaning, whole_text

__all__ = [
    "Document",
    "Entry",
    "Listing",
    "Mapped",
    "Scalar",
    "Value",
    "read_documents",
]

MAX_NODES = 200_000
"""Nodes of one document after its aliases are written out: far above any policy, far below what hurts."""

MAX_TEXT = 1_500_000
"""Characters of one file: a cluster takes no larger object, and a reader in Python needs half a minute for so many."""

PLAIN = "plain"
MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Scalar:
    """`text` is the value as written, without quotes; `value` what it means."""

    line: int
    value: str | int | float | bool | None
    text: str


@dataclass(frozen=True, slots=True)
class Listing:
    line: int
    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    key: str
    line: int
    value: Value


@dataclass(frozen=True, slots=True)
class Mapped:
    line: int
    entries: tuple[Entry, ...]

    def get(self, key: str) -> Value | None:
        return next((e.value for e in self.entries if e.key == key), None)

    def text(self, key: str) -> str | None:
        """The field as text, or None where it is absent or something else."""
        value = self.get(key)
        return value.value if isinstance(value, Scalar) and isinstance(value.value, str) else None


Value = Scalar | Listing | Mapped


@dataclass(frozen=True, slots=True)
class Document:
    """One object.  `number` counts documents of the file from 1; `path` is the prefix of its fields within a List."""

    file: str
    number: int
    root: Mapped
    path: str = ""


class _Loader(yaml.SafeLoader):
    """PyYAML's scanner, parser and composer; what a plain scalar means is decided in `yaml_scalars`."""

    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool]) -> str:
        if kind is yaml.ScalarNode:
            return PLAIN if implicit[0] else "tag:yaml.org,2002:str"
        return "tag:yaml.org,2002:seq" if kind is yaml.SequenceNode else "tag:yaml.org,2002:map"


class _Converter:
    """From PyYAML's nodes to ours, once per document."""

    def __init__(self) -> None:
        self.done: dict[int, tuple[Value, int]] = {}
        self.open: set[int] = set()

    def convert(self, node: yaml.Node, depth: int = 0) -> tuple[Value, int]:
        """The value and its size with every alias written out.  Raises Refused."""
        key, line = id(node), node.start_mark.line + 1
        if key in self.done:
            return self.done[key]
        if key in self.open:
            raise Refused("an alias refers to the very thing that contains it", line)
        if depth > MAX_DEPTH:
            raise Refused(f"nested more than {MAX_DEPTH} levels deep", line)
        self.open.add(key)
        value, size = self._make(node, line, depth)
        self.open.discard(key)
        if size > MAX_NODES:
            raise Refused(f"grows beyond {MAX_NODES} values when its aliases are written out", line)
        self.done[key] = (value, size)
        return value, size

    def _make(self, node: yaml.Node, line: int, depth: int) -> tuple[Value, int]:
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node, line), 1
        if isinstance(node, yaml.SequenceNode):
            parts = [self.convert(n, depth + 1) for n in node.value]
            return Listing(line, tuple(p for p, _ in parts)), 1 + sum(s for _, s in parts)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, line, depth)
        raise Refused("neither a value, a list nor a mapping", line)

    def _mapping(self, node: yaml.MappingNode, line: int, depth: int) -> tuple[Value, int]:
        own: dict[str, Entry] = {}
        merged: list[tuple[Value, int]] = []
        size = 1
        for key_node, value_node in node.value:
            key_line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise Refused("a field's name is text, not a list or a mapping", key_line)
            value, part = self.convert(value_node, depth + 1)
            size += 1 + part
            if key_node.value == "<<" and key_node.style is None:
                merged.extend((v, key_line) for v in (value.items if isinstance(value, Listing) else (value,)))
                continue
            name = whole_text(key_node.value, key_line)
            if name in own:
                raise Refused(f'"{name}" is given twice (first on line {own[name].line})', key_line)
            own[name] = Entry(name, key_line, value)
        for value, key_line in merged:
            if not isinstance(value, Mapped):
                raise Refused("<< merges mappings, and this is none", key_line)
            for entry in value.entries:
                own.setdefault(entry.key, entry)
        return Mapped(line, tuple(own.values())), size


_TEXT_TAGS = {"tag:yaml.org,2002:str", "!"}
_PLAIN_TAGS = {PLAIN, *(f"tag:yaml.org,2002:{t}" for t in ("null", "bool", "int", "float"))}


def _scalar(node: yaml.ScalarNode, line: int) -> Scalar:
    text = whole_text(node.value, line)
    if node.tag in _TEXT_TAGS:
        return Scalar(line, text, text)
    if node.tag in _PLAIN_TAGS:
        return Scalar(line, meaning(text, line), text)
    raise Refused(f"the tag {node.tag} is not read here; write the plain value", line)


def read_documents(file: str, text: str) -> tuple[tuple[Document, ...], tuple[Problem, ...]]:
    """Every object of a file, Lists opened, empty documents skipped; and what could not be read.

    A file that does not parse yields the documents before the fault, so that their problems are told too.
    """
    if len(text) > MAX_TEXT:
        message = f"has {len(text)} characters, and at most {MAX_TEXT} are read from one file; split it"
        return (), (Problem(file=file, document=None, line=None, field="", message=message),)
    text = _without_json_tabs(text.removeprefix("\ufeff"))
    documents: list[Document] = []
    number, current = 0, 1
    problems: list[Problem] = []
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        while True:
            current = number + 1
            if not loader.check_node():
                break
            number = current
            node = loader.get_node()
            if node is None:
                continue
            try:
                value, _ = _Converter().convert(node)
            except Refused as e:
                problems.append(Problem(file=file, document=number, line=e.line, field="", message=e.message))
                continue
            documents.extend(_objects(file, number, value, problems))
    except yaml.reader.ReaderError as e:
        line = text.count("\n", 0, e.position) + 1 if isinstance(e.position, int) else None
        code = ord(e.character) if isinstance(e.character, str) else e.character
        message = f"character U+{code:04X} may not stand in YAML; remove it, or write it as an escape in double quotes"
        problems.append(Problem(file=file, document=number or None, line=line, field="", message=message))
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        problems.append(
            Problem(
                file=file,
                document=current,
                line=mark.line + 1 if mark else None,
                field="",
                message=_explain(e, text),
            )
        )
    except RecursionError:
        problems.append(Problem(file=file, document=current, line=None, field="", message="nested too deep to read"))
    except (yaml.YAMLError, ValueError) as e:
        problems.append(Problem(file=file, document=current, line=None, field="", message=f"not YAML: {e}"))
    finally:
        if loader is not None:
            loader.dispose()
    return tuple(documents), tuple(problems)


def _without_json_tabs(text: str) -> str:
    """JSON allows tabs between tokens and YAML does not.  Valid JSON holds no raw tab inside a string."""
    if "\t" not in text or text.lstrip()[:1] not in {"{", "["}:
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text.replace("\t", " ")


def _explain(e: yaml.MarkedYAMLError, text: str) -> str:
    """PyYAML's complaint, with the hint for the two commonest slips."""
    mark = e.problem_mark
    what = " ".join(part for part in (e.context, e.problem) if part)
    lines = text.split("\n")
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    if "\\t" in what or "\t" in line[: len(line) - len(line.lstrip())]:
        return "not YAML: a tab indents this line; YAML wants spaces"
    if "mapping values are not allowed" in what:
        return f'not YAML: {what}; a value that contains ": " goes in quotes'
    return f"not YAML: {what}"


def _objects(file: str, number: int, value: Value, problems: list[Problem]) -> Iterator[Document]:
    """The objects of one document: itself, or the items of a List."""
    stack: list[tuple[Value, str]] = [(value, "")]
    while stack:
        item, path = stack.pop()
        if isinstance(item, Scalar) and item.value is None:
            continue
        if not isinstance(item, Mapped):
            message = "expected an object with apiVersion and kind"
            problems.append(Problem(file=file, document=number, line=item.line, field=path, message=message))
            continue
        kind = item.text("kind") or ""
        items = item.get("items")
        if kind.endswith("List") and isinstance(items, Listing):
            prefix = f"{path}." if path else ""
            stack += [(child, f"{prefix}items[{i}]") for i, child in reversed(list(enumerate(items.items)))]
            continue
        yield Document(file, number, item, path)
