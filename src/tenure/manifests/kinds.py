"""What every kind of object has in common: apiVersion, kind, metadata; and how a kind is found or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tenure.domain.errors import Problem

from .documents import Document
from .scalars import Text
from .schema import Anything, Field, Object, Record, Type
from .shapes import METADATA
from .spelling import nearest
from .spots import Spot

__all__ = ["Header", "Kind", "read_object", "spot_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Who the object is.  `name` is empty where it was wrong (and told)."""

    kind: str
    version: str
    name: str
    namespace: str
    spot: Spot
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of object: the apiVersions that are read, its fields, and how it becomes a value.

    `build` may be called with unsound parts missing; its result counts only if the document had no error.
    `named` False: the object has no metadata.name of its own (Kueue's Configuration).  `generated`: a name that a cluster
    makes up (metadata.generateName) will do; nobody could refer to an object of policy by one.
    """

    name: str
    versions: Sequence[str]
    fields: Mapping[str, Type | Field]
    build: Callable[[Header, Record], object]
    namespaced: bool = False
    named: bool = True
    generated: bool = False

    def schema(self) -> Object:
        return Object(
            {
                "apiVersion": Field(Text(), required=True),
                "kind": Field(Text(), required=True),
                "metadata": METADATA,
                "status": Anything(),
                **self.fields,
            }
        )


def spot_of(document: Document, problems: list[Problem]) -> Spot:
    return Spot(problems, document.file, document.number, document.root.line, document.path, document.root)


def read_object(
    document: Document,
    kinds: Mapping[str, Kind],
    problems: list[Problem],
    *,
    elsewhere: Mapping[str, str] | None = None,
) -> tuple[Header, object] | None:
    """One object of a known kind as a value, or None after saying why not.

    `elsewhere` maps kinds that are known and not taken here to what to do instead.
    """
    spot = spot_of(document, problems)
    name, version = document.root.text("kind"), document.root.text("apiVersion")
    if not name:
        spot.child("kind").error(f"is required; known here: {', '.join(sorted(kinds))}")
        return None
    if not version:
        spot.child("apiVersion").error(f"is required{_versions(kinds.get(name))}")
        return None
    line = {e.key: e.line for e in document.root.entries}
    kind = kinds.get(name)
    if kind is None:
        hint = (elsewhere or {}).get(name)
        at = spot.child("kind", line["kind"])
        at.error(f'"{name}" {hint}' if hint else f'unknown kind "{name}"{nearest(name, kinds)}')
        return None
    if version not in kind.versions:
        spot.child("apiVersion", line["apiVersion"]).error(f'"{version}" is not read for {name}{_versions(kind)}')
        return None
    record = kind.schema().read(document.root, spot)
    if record is None:
        return None
    header = _header(kind, version, record)
    return header, kind.build(header, record)


def _versions(kind: Kind | None) -> str:
    return "" if kind is None else f"; {' or '.join(kind.versions)} would work"


def _header(kind: Kind, version: str, record: Record) -> Header:
    meta = record.record("metadata")
    if kind.named and not meta.given("name") and not (kind.generated and meta.given("generateName")):
        meta.at("name").error("is required and missing")
    if meta.given("namespace") and not kind.namespaced and kind.named:
        meta.at("namespace").warn(f"a {kind.name} belongs to no namespace")
    return Header(
        kind=kind.name,
        version=version,
        name=meta.get("name", ""),
        namespace=meta.get("namespace", "default") if kind.namespaced else "",
        spot=record.spot,
        labels=dict(meta.get("labels") or {}),
        annotations=dict(meta.get("annotations") or {}),
    )
