"""Models as the documents that declare them.  Reading them back gives the same models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tenure.domain.amounts import GPU_MEMORY, format_quantity
from tenure.domain.model import Model

from .dump import dump_trees
from .durations import format_duration
from .models import VERSION

__all__ = ["dump_models"]

PLAIN = Model(name="", command=())


def dump_models(models: Iterable[Model]) -> str:
    """One multi-document text, by name; empty without models.  Fields that are at their default are left out."""
    return dump_trees(_document(model) for model in sorted(models, key=lambda model: model.name))


def _document(model: Model) -> dict[str, Any]:
    metadata = {"name": model.name}
    if model.namespace != PLAIN.namespace:
        metadata["namespace"] = model.namespace
    return {"apiVersion": VERSION, "kind": "Model", "metadata": metadata, "spec": _spec(model)}


def _spec(model: Model) -> dict[str, Any]:
    spec: dict[str, Any] = {"command": list(model.command)}
    for field, value, plain in (
        ("aliases", list(model.aliases), []),
        ("adapters", [{"name": name} for name in model.adapters], []),
        ("queueName", model.queue, None),
        ("priorityClassName", model.priority_class, None),
        ("shares", model.shares, 0),
        ("gpuMemory", format_quantity(model.gpu_memory, resource=GPU_MEMORY) if model.gpu_memory else None, None),
        ("idleAfter", model.idle_after_s, PLAIN.idle_after_s),
        ("resident", model.resident, False),
        ("startTimeout", model.start_timeout_s, PLAIN.start_timeout_s),
        ("stopTimeout", model.stop_timeout_s, PLAIN.stop_timeout_s),
        ("readyPath", model.ready_path, PLAIN.ready_path),
        ("inferencePaths", list(model.inference_paths), list(PLAIN.inference_paths)),
        ("keepCaches", model.keep_caches, True),
        ("env", dict(model.env), {}),
        ("workingDir", model.workdir, None),
    ):
        if value != plain:
            spec[field] = format_duration(value) if isinstance(value, float) else value
    return spec
