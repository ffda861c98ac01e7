"""`make demo`, whole: with the real models, and on a machine that cannot have them."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("flags", [[], ["--stand-ins"]], ids=["real", "stand-ins"])
def test_every_promise_of_the_demo_is_kept(flags: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tenure.testing.demo", *flags], capture_output=True, text=True, timeout=360, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every promise was kept" in done.stdout
    assert len(re.findall(r"^kept ", done.stdout, re.M)) >= 15
    assert "BROKEN" not in done.stdout
    assert ("'The capital of France is Paris.'" in done.stdout) is not bool(flags)
    assert ("no real models (asked for by --stand-ins)" in done.stdout) is bool(flags)
