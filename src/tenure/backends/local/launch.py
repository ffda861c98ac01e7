"""One process from fork to exec, with every way in which that can fail told in a sentence.

The child does the preparing (session, cgroup, files, working directory) and reports through a pipe that exec closes:
silence means that the program runs.  All children of a gang wait at a gate until the last one is ready.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import errno
import json
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

from . import processes
from .cgroup import Cgroup

__all__ = ["READY", "Failure", "Plan", "explain", "spawn"]

READY = b"."
_CATCHABLE = frozenset(range(1, 32)) - {9, 19}
_LONGEST_STRING = 128 * 1024  # the kernel's MAX_ARG_STRLEN, with 4 KiB pages


class Plan(NamedTuple):
    """All that a child needs.  `argv` is run with `env`, found by the PATH in it."""

    rank: int
    argv: Sequence[str]
    env: Mapping[str, str]
    workdir: str
    stdout: str
    stderr: str
    cgroup: Cgroup | None


class Failure(NamedTuple):
    """Why a process could not be started: a code, a sentence, and what a shell would exit with."""

    code: str
    message: str
    exit_code: int


def spawn(plan: Plan, *, gate: tuple[int, int] | None) -> tuple[int, int]:
    """Fork.  Returns the pid and the descriptor on which the child reports: READY at the gate, JSON on failure, then EOF."""
    parent = os.getpid()
    reader, writer = os.pipe2(os.O_CLOEXEC)
    # A signal that reaches the child before it has its own dispositions would only set a flag of ours, and be lost.
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, _CATCHABLE)
    try:
        pid, inside = _fork(plan.cgroup)
        if pid == 0:
            try:
                os.close(reader)
                _become(plan, parent, gate, writer, inside=inside)
            finally:
                os._exit(127)
    finally:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, before)
    os.close(writer)
    os.set_blocking(reader, False)
    return pid, reader


def _fork(cgroup: Cgroup | None) -> tuple[int, bool]:
    """The pid, 0 in the child; and whether the child is in the group already."""
    if cgroup is not None:
        with contextlib.suppress(OSError):  # an older kernel, or a sandbox: it joins by itself
            return cgroup.fork(), True
    return os.fork(), False


def _become(plan: Plan, parent: int, gate: tuple[int, int] | None, report: int, *, inside: bool) -> NoReturn:
    step = "session"
    try:
        os.setsid()
        processes.die_with_parent()
        if os.getppid() != parent:
            os._exit(127)
        if plan.cgroup is not None and not inside:
            with contextlib.suppress(OSError):  # a second net only: parentage holds without it
                plan.cgroup.join()
        step = "log"
        _redirect(plan)
        step = "workdir"
        os.chdir(plan.workdir or "/")
        step = "gate"
        if gate is not None:
            os.close(gate[1])
            os.write(report, READY)
            os.read(gate[0], 1)  # returns at the end of file: everybody is ready
        _default_signals()
        step = "exec"
        _exec(plan)
    except OSError as error:
        told = {"step": step, "errno": error.errno, "file": str(error.filename or "")}
        os.write(report, json.dumps(told).encode())
    except ValueError as error:  # a NUL, or a variable's name that is none
        os.write(report, json.dumps({"step": "value", "errno": 0, "file": str(error)}).encode())
    os._exit(127)


def _redirect(plan: Plan) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK
    files = [os.open("/dev/null", os.O_RDONLY), os.open(plan.stdout, flags, 0o666), os.open(plan.stderr, flags, 0o666)]
    for target, fd in enumerate(files):
        os.set_blocking(fd, True)
        os.dup2(fd, target, inheritable=True)


def _default_signals() -> None:
    """What this process ignores or catches must not be inherited: `nohup tenure up` is no `nohup` for every job.

    By the C module: `signal` wraps every number in an enum, which costs a start more than all that it does.
    """
    _signal.set_wakeup_fd(-1)
    for number in _CATCHABLE:
        if _signal.getsignal(number) != _signal.SIG_DFL:
            _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def _exec(plan: Plan) -> None:
    """Raises the OSError that tells most: of a program that is there, rather than of a directory where it is not."""
    program, argv, env = plan.argv[0], list(plan.argv), dict(plan.env)
    if "/" in program:
        _execute(program, argv, env)
    worst: OSError | None = None
    for directory in env.get("PATH", os.defpath).split(":"):
        try:
            _execute(os.path.join(directory, program), argv, env)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR) or worst is None:
                worst = error
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                    break
    if worst is not None:
        raise worst


def _execute(path: str, argv: list[str], env: dict[str, str]) -> None:
    try:
        os.execve(path, argv, env)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        # no #! line: what execvp(3) and every shell do
        os.execve("/bin/sh", ["/bin/sh", path, *argv[1:]], env)


def explain(plan: Plan, report: bytes) -> Failure:
    """The report of a child that could not become its program, in words."""
    try:
        told = json.loads(report.lstrip(READY))
        step, number, file = str(told["step"]), int(told["errno"]), str(told["file"])
    except (ValueError, KeyError, TypeError):
        return Failure("LaunchFailed", "the process died before its program could be started", 126)
    if step == "value":
        return Failure("InvalidCommand", f"the command line or the environment cannot be passed on: {file}", 126)
    why = os.strerror(number)
    if step == "log":
        return Failure("LogUnwritable", f"cannot write the output to {file or plan.stdout!r}: {why}", 126)
    if step == "workdir":
        return Failure("WorkdirUnusable", f"cannot enter the working directory {plan.workdir!r}: {why}", 126)
    program = plan.argv[0]
    if number == errno.E2BIG:
        return Failure("EnvironmentTooLarge", _too_large(plan), 126)
    if number in (errno.ENOENT, errno.ENOTDIR):
        if "/" in program and os.path.exists(os.path.join(plan.workdir or "/", program)):
            return Failure(
                "InterpreterNotFound", f"{program!r} exists, but the interpreter in its #! line does not", 127
            )
        place = "no such file" if "/" in program else f"not found on PATH ({plan.env.get('PATH', '')})"
        return Failure("CommandNotFound", f"cannot run {program!r}: {place}", 127)
    return Failure("NotExecutable", f"cannot run {program!r}: {why}", 126)


def _too_large(plan: Plan) -> str:
    longest = max(plan.env, key=lambda name: len(os.fsencode(plan.env[name])), default="")
    size = len(os.fsencode(plan.env[longest])) + len(os.fsencode(longest)) + 2 if longest else 0
    if size > _LONGEST_STRING:
        return f"the variable {longest} has {size} bytes; the kernel takes at most {_LONGEST_STRING} in one variable"
    argument = max((len(os.fsencode(a)) + 1 for a in plan.argv), default=0)
    if argument > _LONGEST_STRING:
        return f"one argument has {argument} bytes; the kernel takes at most {_LONGEST_STRING}. Pass a file instead"
    total = sum(len(os.fsencode(k)) + len(os.fsencode(v)) + 2 for k, v in plan.env.items())
    total += sum(len(os.fsencode(word)) + 1 for word in plan.argv)
    return f"command line and environment have {total} bytes together, more than the kernel takes (see `ulimit -s`)"
