"""A model server that sleeps until it is asked for: what its owner declared, and the states that it can be in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["INFERENCE_PATHS", "Model", "ModelState"]

INFERENCE_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")


class ModelState(StrEnum):
    """Where a model is.  It holds its share in every state but `asleep`, `queued` and `failed`."""

    ASLEEP = "asleep"  # no job: every process has left
    QUEUED = "queued"  # asked for, and waiting for quota
    STARTING = "starting"  # its process runs, or is about to; it does not answer yet
    READY = "ready"
    DRAINING = "draining"  # asked to stop; what is in flight may end
    FAILED = "failed"  # it ended by itself, or was not ready in time; the next request may try again


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One OpenAI-compatible server.  `{port}` in a word of `command` stands for the port that it is to listen on.

    Times are seconds, amounts bytes.  `aliases` and `adapters` are further names that clients may use: an alias is
    rewritten to `name` on the way, an adapter's name is what the server itself expects.
    """

    name: str
    command: tuple[str, ...]
    namespace: str = "default"
    aliases: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    queue: str | None = None
    priority_class: str | None = None
    shares: int = 0
    gpu_memory: int = 0
    idle_after_s: float = 3600.0
    resident: bool = False  # started with the platform, and never put to sleep for being idle
    start_timeout_s: float = 300.0
    stop_timeout_s: float = 30.0
    ready_path: str = "/health"
    inference_paths: tuple[str, ...] = INFERENCE_PATHS
    keep_caches: bool = True
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
