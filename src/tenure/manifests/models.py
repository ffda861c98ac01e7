"""`tenure.dev/v1` Model: a server that wakes on request, in a document beside the policy's.

As strict as every other kind here.  `schemas/model.json` says the same to editors; a test holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files

from tenure.domain.model import INFERENCE_PATHS, Model

from .kinds import Header, Kind
from .scalars import Amount, Duration, Flag, Number, Text
from .schema import Field, ListOf, MapOf, Object, Record
from .shapes import NAME
from .spots import Spot

__all__ = ["MODEL", "model_schema", "refuse_same_names"]

VERSION = "tenure.dev/v1"
CALLED = Text(
    pattern=re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}"),
    rule="clients call a model by letters, digits, '.', '_', ':', '/', '@', '+' and '-'",
)
PATH = Text(pattern=re.compile(r"/[^\s?#]*"), rule="a path begins with / and has no query, such as /health")


SPEC = Object(
    {
        "command": Field(ListOf(item=Text(), low=1), required=True),
        "aliases": ListOf(item=CALLED, unique=True),
        "adapters": ListOf(item=Object({"name": Field(CALLED, required=True)})),
        "queueName": NAME,
        "priorityClassName": NAME,
        "shares": Number(low=0, high=1_000_000),
        "gpuMemory": Amount(),
        "idleAfter": Duration(positive=True),
        "resident": Flag(),
        "startTimeout": Duration(positive=True),
        "stopTimeout": Duration(positive=True),
        "readyPath": PATH,
        "inferencePaths": ListOf(item=PATH, low=1, unique=True),
        "keepCaches": Flag(),
        "env": MapOf(value_of=lambda _: Text()),
        "workingDir": Text(pattern=re.compile(r"/.*", re.S), rule="write an absolute path"),
    }
)


def model_schema() -> str:
    """The JSON Schema of a Model document, as text, for editors."""
    return files(__package__).joinpath("schemas", "model.json").read_text("utf-8")


def refuse_same_names(models: Sequence[tuple[Header, Model]]) -> None:
    """A name that clients use leads to one model: names, aliases and adapters of all models are told apart."""
    taken: dict[str, str] = {}
    for header, model in models:
        taken.setdefault(model.name, header.name)
    for header, model in models:
        for name, at in _further(header, model):
            owner = taken.setdefault(name, model.name)
            if owner != model.name or name == model.name:
                at.error(f'"{name}" already leads to the model "{owner}"; a name leads to one model')


def _further(header: Header, model: Model) -> Iterator[tuple[str, Spot]]:
    spec = header.spot.child("spec")
    for field, names in (("aliases", model.aliases), ("adapters", model.adapters)):
        seen: set[str] = set()
        for i, name in enumerate(names):
            spot = spec.child(field).item(i)
            if name in seen or (field == "adapters" and name in model.aliases):
                spot.error(f'"{name}" stands here twice')
            seen.add(name)
            yield name, spot


def _build(header: Header, record: Record) -> Model:
    spec = record.record("spec")
    command = tuple(spec.get("command") or ())
    shares, memory = spec.get("shares", 0), spec.get("gpuMemory", 0)
    if command and not any("{port}" in word for word in command):
        spec.at("command").error('does not say {port}, so the server cannot be told where to listen; add "{port}"')
    if shares and not memory:
        spec.at("gpuMemory").error("is required where shares are asked for, such as 8Gi")
    if memory and not shares:
        spec.at("shares").error("is required where gpuMemory is asked for, such as 1")
    if spec.get("resident") and spec.given("idleAfter"):
        spec.at("idleAfter").warn("has no effect on a resident model, which never sleeps for being idle")
    plain: Callable[[str, float], float] = spec.get
    return Model(
        name=header.name,
        namespace=header.namespace,
        command=command,
        aliases=tuple(spec.get("aliases") or ()),
        adapters=tuple(a.get("name", "") for a in spec.get("adapters") or ()),
        queue=spec.get("queueName"),
        priority_class=spec.get("priorityClassName"),
        shares=shares,
        gpu_memory=memory,
        idle_after_s=plain("idleAfter", 3600.0),
        resident=bool(spec.get("resident", False)),
        start_timeout_s=plain("startTimeout", 300.0),
        stop_timeout_s=plain("stopTimeout", 30.0),
        ready_path=spec.get("readyPath", "/health"),
        inference_paths=tuple(spec.get("inferencePaths") or INFERENCE_PATHS),
        keep_caches=bool(spec.get("keepCaches", True)),
        env=dict(spec.get("env") or {}),
        workdir=spec.get("workingDir"),
    )


MODEL = Kind(
    name="Model", versions=(VERSION,), fields={"spec": Field(SPEC, required=True)}, build=_build, namespaced=True
)
