"""A signal that arrives while a process is being made is not lost: it meets the program, not what came before it."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import os, signal, sys
from tenure.backends.local.launch import Plan, spawn

signal.signal(signal.SIGTERM, lambda *_: None)  # as a supervisor has it
for number in range(200):
    plan = Plan(0, ["sleep", "60"], dict(os.environ), "/", os.devnull, os.devnull, None)
    pid, report = spawn(plan, gate=None)
    for _ in range(number * 20):
        pass  # the signal comes a little later each time
    os.kill(pid, signal.SIGTERM)
    _, status = os.waitpid(pid, 0)
    os.close(report)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM, (number, status)
assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set(), "the parent hears as before"
print("ok")
"""


def test_a_stop_right_after_the_fork_ends_the_program():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=False, env=dict(os.environ)
    )
    assert (done.stdout, done.stderr) == ("ok\n", "")
