"""`srun` inside an #SBATCH script on one machine: starts the tasks of one step and ends as they do.

Standard library only and run by path, with nothing of the project imported: it stands between a script and its tasks.
What it does not understand is named on standard error, never silently dropped.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from types import FrameType
from typing import NoReturn

__all__ = ["filled", "main"]

_HELP = """usage: srun [-n TASKS] [-c CPUS] [-l] [-K] [-u] [-D DIR] [-o FILE] [-e FILE] [-i FILE] [--export=...] COMMAND [ARGUMENTS]
Starts TASKS copies of COMMAND (SLURM_NTASKS by default) with SLURM_PROCID, SLURM_LOCALID and company."""

# options that this machine fulfils by itself, or that cannot matter on one node: taken in silence
_SILENT_FLAGS = {
    "--exclusive", "--exact", "--overlap", "-u", "--unbuffered", "-Q", "--quiet", "-v", "--verbose", "-s", "--oversubscribe", "-O",
    "--overcommit",
}  # fmt: skip
_SILENT_VALUES = {
    "-N", "--nodes", "--mpi", "--cpu-bind", "--cpu_bind", "--mem-bind", "--mem", "--mem-per-cpu", "--mem-per-gpu", "-J", "--job-name",
    "--gres", "--gpus", "-G", "--gpus-per-task", "--gpus-per-node", "--gpu-bind", "--ntasks-per-node", "-t", "--time", "-p", "--partition",
    "-m", "--distribution", "--threads-per-core", "--hint", "-W", "--wait", "--jobid", "-A", "--account", "-q", "--qos", "-w", "--nodelist",
}  # fmt: skip
# options that are named and not fulfilled: each takes the word after it, which is not the command
_IDLE_VALUES = {
    "-b", "--begin", "-B", "--extra-node-info", "-C", "--constraint", "-d", "--dependency", "-F", "--nodefile", "-L", "--licenses",
    "-M", "--clusters", "-r", "--relative", "-S", "--core-spec", "-T", "--threads", "-x", "--exclude", "--accel-bind",
    "--acctg-freq", "--bb", "--bbf", "--bcast-exclude", "--cluster-constraint", "--comment", "--container", "--cores-per-socket",
    "--cpu-freq", "--cpus-per-gpu", "--deadline", "--delay-boot", "--epilog", "--gid", "--gpu-freq", "--gpus-per-socket",
    "--gres-flags", "--het-group", "--mail-type", "--mail-user", "--mcs-label", "--mincpus", "--msg-timeout", "--network",
    "--ntasks-per-core", "--ntasks-per-gpu", "--ntasks-per-socket", "--open-mode", "--power", "--prefer", "--priority", "--profile",
    "--prolog", "--reservation", "--signal", "--slurmd-debug", "--sockets-per-node", "--switches", "--task-epilog", "--task-prolog",
    "--thread-spec", "--time-min", "--tmp", "--tres-bind", "--tres-per-task", "--uid", "--wckey",
}  # fmt: skip
_VALUES = {
    "-n": "ntasks", "--ntasks": "ntasks", "-c": "cpus", "--cpus-per-task": "cpus", "-D": "chdir", "--chdir": "chdir", "-o": "output",
    "--output": "output", "-e": "error", "--error": "error", "-i": "input", "--input": "input", "--export": "export",
}  # fmt: skip
_FLAGS = {"-l": "label", "--label": "label"}
_FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGQUIT,
    signal.SIGCONT,
)
_ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})  # who has not begun does not begin


def _complain(text: str) -> None:
    print(f"srun: {text}", file=sys.stderr, flush=True)


def _parse(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """Options (long names) and the command.  Exits with 2 on what cannot be run."""
    options: dict[str, str] = {}
    words = list(arguments)
    while words and words[0].startswith("-") and words[0] != "-":
        word = words.pop(0)
        if word == "--":
            break
        if word in ("-h", "--help"):
            print(_HELP)
            raise SystemExit(0)
        name, equals, value = word.partition("=") if word.startswith("--") else (word[:2], "", word[2:])
        if word.startswith("-") and not word.startswith("--") and value.startswith("="):
            value = value[1:]
        if name in ("-K", "--kill-on-bad-exit"):
            options["kill"] = value or "1"
        elif name in _FLAGS and not value:
            options[_FLAGS[name]] = "1"
        elif name in _SILENT_FLAGS:
            if len(word) > 2 and not word.startswith("--"):
                words.insert(0, "-" + word[2:])  # -lu is -l -u
        elif name in _VALUES or name in _SILENT_VALUES:
            if not value and not equals:
                if not words:
                    _complain(f"the option {name} needs a value")
                    raise SystemExit(2)
                value = words.pop(0)
            if name in _VALUES:
                options[_VALUES[name]] = value
        elif name in _FLAGS:
            options[_FLAGS[name]] = "1"
            words.insert(0, "-" + word[2:])
        elif name == "--multi-prog":
            _complain("--multi-prog is not understood here: start one srun for each program")
            raise SystemExit(2)
        else:
            _complain(f"the option {word!r} is not known here and has no effect")
            if name in _IDLE_VALUES and not value and not equals:
                del words[:1]
    if not words:
        _complain("no command was given\n" + _HELP)
        raise SystemExit(2)
    return options, words


def _count(options: dict[str, str]) -> int:
    text = options.get("ntasks") or os.environ.get("SLURM_NTASKS") or "1"
    if not text.isdigit() or int(text) < 1:
        _complain(f"{text!r} is no number of tasks")
        raise SystemExit(2)
    return int(text)


def _step() -> int:
    """The number of this step within the attempt, counted in the run directory so that concurrent steps differ."""
    directory = os.environ.get("TENURE_RUN_DIR")
    if not directory:
        return 0
    for step in range(100_000):
        try:
            os.close(os.open(os.path.join(directory, f".step.{step}"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            return step
        except FileExistsError:
            continue
        except OSError:
            break
    return 0


def _environment(options: dict[str, str], tasks: int, step: int) -> dict[str, str]:
    env = dict(os.environ)
    wanted = options.get("export", "ALL").split(",")
    if "ALL" not in wanted:
        kept = {word for word in wanted if "=" not in word} | {"PATH", "HOME"}
        env = {
            name: value
            for name, value in env.items()
            if name in kept or name.startswith(("SLURM_", "TENURE_", "CUDA_"))
        }
    for word in wanted:
        name, equals, value = word.partition("=")
        if equals:
            env[name] = value
    host = socket.gethostname().split(".")[0]
    cpus = options.get("cpus") or env.get("SLURM_CPUS_PER_TASK") or "1"
    env.update(
        SLURM_NTASKS=str(tasks), SLURM_NPROCS=str(tasks), SLURM_STEP_NUM_TASKS=str(tasks), SLURM_STEP_ID=str(step), SLURM_STEPID=str(step),
        SLURM_STEP_NUM_NODES="1", SLURM_STEP_NODELIST=host, SLURM_STEP_TASKS_PER_NODE=str(tasks), SLURM_TASKS_PER_NODE=str(tasks),
        SLURM_NNODES="1", SLURM_NODEID="0", SLURM_CPUS_PER_TASK=cpus, SLURM_SRUN_COMM_HOST="127.0.0.1", SLURM_LAUNCH_NODE_IPADDR="127.0.0.1",
        SLURM_GTIDS=",".join(map(str, range(tasks))), SLURM_STEP_GPUS=env.get("CUDA_VISIBLE_DEVICES", ""),
    )  # fmt: skip
    return env


def filled(pattern: str, values: Mapping[str, str]) -> str:
    """Slurm's filename pattern with its letters replaced.  `%4j` pads a number with zeros, to ten digits at most.

    An unknown letter stays as it is written; a pattern with a backslash in it is taken literally, without the backslash.
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")
    out, rest = "", pattern
    while True:
        head, percent, rest = rest.partition("%")
        out += head
        if not percent:
            return out
        letter = rest.lstrip("0123456789")[:1]
        width, _, after = rest.partition(letter) if letter else (rest, "", "")
        value = values.get(letter)
        if value is None:
            out += f"%{width}{letter}"
        else:
            out += value.zfill(min(int(width[:9] or 0), 10)) if value.isdecimal() else value
        rest = after


def _pattern(pattern: str, task: int, step: int) -> str:
    job = os.environ.get("SLURM_JOB_ID", "0")
    values = {
        "t": str(task), "s": str(step), "j": job, "J": f"{job}.{step}", "x": os.environ.get("SLURM_JOB_NAME", ""), "n": "0",
        "A": os.environ.get("SLURM_ARRAY_JOB_ID", job), "a": os.environ.get("SLURM_ARRAY_TASK_ID", "0"),
        "N": socket.gethostname().split(".")[0], "u": os.environ.get("USER", ""), "%": "%",
    }  # fmt: skip
    return filled(pattern, values)


class _Step:
    """The running tasks."""

    def __init__(self, options: dict[str, str], command: list[str]) -> None:
        self._options, self._command = options, command
        self._tasks, self._number = _count(options), _step()
        self._env = _environment(options, self._tasks, self._number)
        self._pids: dict[int, int] = {}  # pid -> task
        self._streams: dict[int, tuple[int, int, bytes]] = {}  # read end -> task, target, the unfinished line
        self._poll = select.poll()
        self._highest = 0
        self._killing = False
        self._told = 0  # the signal that asked for the end

    def run(self) -> int:
        wake_reader, wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _FORWARDED:
            signal.signal(number, self._forward)
        self._poll.register(wake_reader, select.POLLIN)
        for task in range(self._tasks):
            if self._told:
                self._highest = max(self._highest, 128 + self._told)
                break
            self._start(task)
        while self._pids or self._streams:
            for fd, _ in self._poll.poll():
                if fd == wake_reader:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_reader, 4096)
                else:
                    self._pass_on(fd)
            self._reap()
        return self._highest

    def _forward(self, number: int, _: FrameType | None) -> None:
        if number in _ENDING:
            self._told = number
        for pid in list(self._pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _start(self, task: int) -> None:
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in (1, 2)] if "label" in self._options else []
        sys.stdout.flush()
        # What comes meanwhile waits in the kernel: a child must not take it for its parent's, nor the parent miss the child.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
        pid = os.fork()
        if pid == 0:
            self._become(task, [writer for _, writer in pipes], before)
        self._pids[pid] = task
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for target, (reader, writer) in enumerate(pipes, start=1):
            os.close(writer)
            self._streams[reader] = (task, target, b"")
            self._poll.register(reader, select.POLLIN | select.POLLHUP)

    def _become(self, task: int, writers: list[int], mask: set[int]) -> NoReturn:
        try:
            ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # die with this srun
            signal.set_wakeup_fd(-1)
            for number in (*_FORWARDED, signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            for target, writer in enumerate(writers, start=1):
                os.dup2(writer, target)
            self._files(task)
            if "chdir" in self._options:
                os.chdir(self._options["chdir"])
            env = {
                **self._env,
                "SLURM_PROCID": str(task),
                "SLURM_LOCALID": str(task),
                "SLURM_TASK_PID": str(os.getpid()),
            }
            os.execvpe(self._command[0], self._command, env)
        except OSError as error:
            _complain(f"task {task}: cannot run {self._command[0]!r}: {os.strerror(error.errno or 0)}")
            os._exit(127 if error.errno in (errno.ENOENT, errno.ENOTDIR) else 126)
        finally:
            os._exit(126)

    def _files(self, task: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        if "input" in self._options:
            os.dup2(os.open(_pattern(self._options["input"], task, self._number), os.O_RDONLY), 0)
        if "output" in self._options:
            out = os.open(_pattern(self._options["output"], task, self._number), flags, 0o666)
            os.dup2(out, 1)
            if "error" not in self._options:
                os.dup2(out, 2)
        if "error" in self._options:
            os.dup2(os.open(_pattern(self._options["error"], task, self._number), flags, 0o666), 2)

    def _pass_on(self, fd: int) -> None:
        """Whole lines with the task's number in front, as `srun --label` writes them."""
        task, target, rest = self._streams[fd]
        data = os.read(fd, 65536)
        *whole, rest = (rest + data).split(b"\n")
        if not data:
            self._poll.unregister(fd)
            os.close(fd)
            del self._streams[fd]
            whole += [rest] if rest else []
        else:
            self._streams[fd] = (task, target, rest)
        if whole:
            width = len(str(self._tasks - 1))
            text = b"".join(f"{task:>{width}}: ".encode() + line + b"\n" for line in whole)
            while text:
                text = text[os.write(target, text) :]

    def _reap(self) -> None:
        while self._pids:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            task = self._pids.pop(pid, None)
            if task is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            if code and not self._killing:
                told = f"exited with code {code}" if code > 0 else f"was ended by signal {-code}"
                _complain(f"task {task} {told}")
            if not (self._killing and code < 0):  # those that we ended say nothing about the step
                self._highest = max(self._highest, code if code >= 0 else 128 - code)
            if code and self._options.get("kill", "0") != "0" and not self._killing:
                self._killing = True
                _complain(f"ending the other tasks of the step, as task {task} failed")
                for other in self._pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(other, signal.SIGTERM)
                signal.signal(signal.SIGALRM, self._kill)
                signal.alarm(5)

    def _kill(self, *_: object) -> None:
        for pid in list(self._pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """The highest exit code of the tasks (128+N for signal N)."""
    options, command = _parse(arguments)
    return _Step(options, command).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
