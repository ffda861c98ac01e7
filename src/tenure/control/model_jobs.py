"""A model that runs is a job like any other: its spec, the port that it listens on, and the caches that outlive it."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from tenure.domain.job import JobSpec
from tenure.domain.model import Model

from .live import Live

__all__ = [
    "MODEL",
    "PORT",
    "PROJECT",
    "in_the_place",
    "is_resident",
    "model_of",
    "owner",
    "port_of",
    "spec_of",
]

PROJECT = "models"
MODEL, PORT = "tenure.dev/model", "tenure.dev/port"  # labels: whose job it is, and where it listens
RESIDENT = "tenure.dev/resident"  # a label of those that are never put to sleep
CACHES: Mapping[str, str] = {
    "CUDA_CACHE_PATH": "cuda",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "VLLM_CACHE_ROOT": "vllm",
    "JAX_COMPILATION_CACHE_DIR": "jax",  # without it JAX keeps nothing
    "NUMBA_CACHE_DIR": "numba",  # without it Numba keeps things beside the source, whatever `keepCaches` says
}


def owner() -> str:
    """Model servers belong to whoever runs the platform."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def spec_of(model: Model, *, home: Path, port: int) -> JobSpec:
    """The job of one wake.  Makes the directories that it names; without `keepCaches` its caches begin empty."""
    caches = home / "caches" / model.name
    if not model.keep_caches:
        shutil.rmtree(caches, ignore_errors=True)
    caches.mkdir(mode=0o700, parents=True, exist_ok=True)
    workdir = Path(model.workdir) if model.workdir is not None else home / "models"
    if model.workdir is None:
        workdir.mkdir(mode=0o700, exist_ok=True)
    return JobSpec(
        name=model.name,
        argv=tuple(word.replace("{port}", str(port)) for word in model.command),
        workdir=str(workdir),
        env={**{name: str(caches / folder) for name, folder in CACHES.items()}, **model.env, "PORT": str(port)},
        project=PROJECT,
        namespace=model.namespace,
        owner=owner(),
        queue=model.queue,
        priority_class=model.priority_class,
        shares=model.shares,
        gpu_memory=model.gpu_memory,
        grace_s=model.stop_timeout_s,
        labels={MODEL: model.name, PORT: str(port), **({RESIDENT: "true"} if model.resident else {})},
    )


def model_of(live: Live) -> str | None:
    """The model that a job serves.  A job of anybody else's that says so is not believed."""
    if live.spec.project != PROJECT or live.spec.owner != owner() or port_of(live) is None:
        return None
    return live.spec.labels.get(MODEL)


def is_resident(live: Live) -> bool:
    """A model that was declared resident, of whatever class."""
    return model_of(live) is not None and live.spec.labels.get(RESIDENT) == "true"


def port_of(live: Live) -> int | None:
    text = live.spec.labels.get(PORT, "")
    return int(text) if text.isdecimal() else None


def in_the_place(mine: str, holders: Iterable[Live]) -> str:
    """A tail for why a model waits: which other models have what it waits for.  Empty where none does."""
    names = sorted({(name, live.id) for live in holders if (name := model_of(live)) is not None and name != mine})
    if not names:
        return ""
    verb = "has" if len(names) == 1 else "have"
    return f"; {' and '.join(f'model {name} (job {job})' for name, job in names)} {verb} the place that model {mine} waits for"
