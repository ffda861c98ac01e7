"""What counts as use of a notebook, look by look, on a clock of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tenure.sdk.idleness import Idleness, card_in_use, descendants, processor_seconds


class Bench:
    """An `Idleness` over this process's children, with a clock and a card to turn by hand."""

    def __init__(self, server: int) -> None:
        self.now, self.card = 0.0, False
        self.idleness = Idleness(server, clock=lambda: self.now, card=lambda pids: self.card)

    def after(self, seconds: float, kernels: Sequence[Any] = (), terminals: Sequence[Any] = ()) -> str:
        self.now += seconds
        return self.idleness.look(kernels, terminals)


def kernel(state: str, activity: str = "a") -> dict[str, str]:
    return {"id": "k", "execution_state": state, "last_activity": activity}


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_a_kernel_that_runs_is_in_use_and_one_that_rests_is_not(child: subprocess.Popen[bytes]) -> None:
    bench = Bench(child.pid)
    for state in ("starting", "busy", "busy", "restarting"):
        assert "running" in bench.after(100, [kernel(state)])
        assert bench.idleness.seconds == 0
    for _ in range(3):  # an open page asks and changes nothing
        assert bench.after(10, [kernel("idle")]) == ""
    assert bench.idleness.seconds == 30
    assert bench.after(1, [kernel("idle", "b")]) != ""
    assert bench.after(5, [kernel("idle", "b")], [{"name": "1", "last_activity": "c"}]) != ""
    assert bench.after(5, [kernel("idle", "b")], [{"name": "1", "last_activity": "c"}]) == ""
    assert bench.after(5, [], [{"name": "1", "last_activity": "c"}]) != ""  # somebody closed a kernel
    assert bench.idleness.seconds == 0


def test_processor_and_card_count(child: subprocess.Popen[bytes]) -> None:
    bench = Bench(os.getpid())
    assert bench.after(10) == ""
    bench.card = True
    assert "card" in bench.after(10)
    bench.card = False
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as works:
        try:
            bench.after(1)
            while processor_seconds(works.pid) < 0.2:
                pass
            assert "compute" in bench.after(1)
        finally:
            works.kill()
    assert child.pid in descendants(os.getpid())
    assert os.getpid() not in descendants(os.getpid())


def test_a_card_is_asked_about_by_the_drivers_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert card_in_use([41, 42]) is False  # nobody can say
    tool = tmp_path / "nvidia-smi"
    head = "# gpu     pid   type     sm    mem    enc    dec    command\\n"
    for line, used in (
        ("0 42 C 37 5 - - python", True),
        ("0 43 C 99 5 - - python", False),
        ("0 42 C - - - - -", False),
    ):
        tool.write_text(f"#!/bin/sh\nprintf '{head}    {line}\\n'\n")
        tool.chmod(0o755)
        assert card_in_use([41, 42]) is used
