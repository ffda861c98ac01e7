"""Fixtures around the fake NVML library, for any test folder.  In its conftest.py:

    sys.path.insert(0, str(Path(__file__).parents[1] / "telemetry"))
    from nvml_fixtures import fake_nvml, nvml_library  # noqa: E402, F401

`fake_nvml(cards=2)` gives a `FakeNvml`: its `env` is for the programs under test, its `state` steers the cards.
The library is never loaded into the test's own process: nvidia-ml-py finds it by LD_LIBRARY_PATH, read at exec.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from nvml_state import H200, NvmlState

HERE = Path(__file__).parent


@dataclass(frozen=True)
class FakeNvml:
    state: NvmlState
    library: Path
    env: dict[str, str]  # LD_LIBRARY_PATH, FAKE_NVML_STATE, and PYTHONPATH with the stand-in for torch

    def environ(self, **more: str) -> dict[str, str]:
        """This process's environment with the fake cards in it."""
        return {**os.environ, **self.env, **more}

    def start(self, code: str, *args: str) -> subprocess.Popen[str]:
        """A Python program that sees the cards, with its standard streams on pipes."""
        return subprocess.Popen(
            [sys.executable, "-c", code, *args],
            env=self.environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with libnvidia-ml.so.1, built once."""
    folder = tmp_path_factory.mktemp("nvml")
    source = HERE / "fake_nvml" / "fake_nvml.c"
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden"]
    subprocess.run(["gcc", *flags, "-o", str(folder / "libnvidia-ml.so.1"), str(source)], check=True)
    return folder


@pytest.fixture
def fake_nvml(nvml_library: Path, tmp_path: Path) -> Iterator[Callable[..., FakeNvml]]:
    """Makes machines with fake cards: `fake_nvml(cards=1, model=(name, bytes))`."""
    made: list[NvmlState] = []

    def make(cards: int = 1, model: tuple[str, int] = H200) -> FakeNvml:
        state = NvmlState.create(tmp_path / f"nvml-{len(made)}.state", cards=cards, model=model)
        made.append(state)
        env = state.env(nvml_library)
        path = [str(HERE / "fake_torch"), str(HERE), os.environ.get("PYTHONPATH", "")]
        return FakeNvml(state, nvml_library, {**env, "PYTHONPATH": os.pathsep.join(p for p in path if p)})

    yield make
    for state in made:
        state.close()
