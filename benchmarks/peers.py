"""Other schedulers, started beside ours for the same question.  A peer that is not here says why, and nothing else.

HyperQueue comes from its Python wheel, which holds server, worker and client in one library (no `hq` program), so all
three share one process here and its client pays no start of a program.  Slurm and task-spooler are Debian's
(`apt-get install slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge task-spooler`).
"""

from __future__ import annotations

import contextlib
import ctypes
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from .rig import Plan

__all__ = ["Absent", "HyperQueue", "Peer", "Slurm", "TaskSpooler", "free_ports", "present"]


class Absent(Exception):
    """A peer cannot be measured here; the text is the reason."""


class Peer(Protocol):
    """`one` answers milliseconds from before a submission to the time that the job itself printed."""

    name: str

    def __init__(self, plan: Plan) -> None: ...
    def one(self) -> float: ...
    def thousand(self) -> float: ...
    def close(self) -> None: ...


@contextlib.contextmanager
def present(plan: Plan, *kinds: type[Peer]) -> Iterator[tuple[list[Peer], dict[str, str]]]:
    """The peers that could be started, and the reasons of those that could not."""
    here: list[Peer] = []
    reasons: dict[str, str] = {}
    with contextlib.ExitStack() as ends:
        for kind in kinds if plan.peers else ():
            try:
                peer = kind(plan)
            except (Absent, OSError, subprocess.SubprocessError) as error:
                reasons[kind.name] = str(error)
                plan.say(f"{kind.name}: {error}")
            else:
                ends.callback(peer.close)
                here.append(peer)
        yield here, reasons


def _dies_with_us() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _program(name: str) -> str:
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if found is None:
        raise Absent(f"there is no {name} on this machine (Debian has it)")
    return found


# ---------------------------------------------------------------------- HyperQueue

_HQ = """
import json, os, sys, time
import hyperqueue.client as hqc
from hyperqueue.cluster import LocalCluster, WorkerConfig
from hyperqueue.job import Job
folder = sys.argv[1]
say = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
cluster = LocalCluster(os.path.join(folder, "server"))
cluster.start_worker(WorkerConfig(cores=8))
client = cluster.client()
def stamp(path):
    while True:
        try:
            text = open(path).read()
        except FileNotFoundError:
            text = ""
        if text.endswith("\\n"):
            os.unlink(path)
            return int(text)
        time.sleep(0.002)
def one(path, job):
    begun = time.time_ns()
    client.submit(job)
    return (stamp(path) - begun) / 1e6
say.write("ready\\n"); say.flush()
for line in sys.stdin:
    path = os.path.join(folder, "out")
    job = Job()
    if line.strip() == "one":
        job.program(["date", "+%s%N"], stdout=path)
    else:
        tasks = [job.program(["true"], stdout=None, stderr=None) for _ in range(int(line))]
        job.program(["date", "+%s%N"], stdout=path, deps=tasks)
    say.write(json.dumps(one(path, job)) + "\\n"); say.flush()
cluster.stop()
"""


class HyperQueue:
    """Server, worker of eight cores and client.  The end of many is told by a last task that depends on all others."""

    name = "HyperQueue"

    def __init__(self, plan: Plan) -> None:
        self._folder = plan.scratch / "hyperqueue"
        self._folder.mkdir(exist_ok=True)
        python = plan.scratch / "hyperqueue-venv" / "bin" / "python"
        if not python.exists():
            plan.say("HyperQueue: installing into a venv of its own")
            subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True, capture_output=True)
            done = subprocess.run(
                [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "hyperqueue"],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                shutil.rmtree(python.parent.parent)
                raise Absent(f"pip could not install hyperqueue: {(done.stderr.strip() or '?').splitlines()[-1]:.120}")
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [python, "-c", _HQ, self._folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self._folder,
                preexec_fn=_dies_with_us,  # noqa: PLW1509  no threads here yet that hold a lock it needs
            )
        if self._answer() != "ready":
            raise Absent(f"its cluster did not start; see {self._folder}/log")

    def one(self) -> float:
        return float(self._ask("one"))

    def thousand(self) -> float:
        return float(self._ask("1000")) / 1000

    def _ask(self, text: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


# ---------------------------------------------------------------------- task-spooler


class TaskSpooler:
    """`tsp` with eight slots, its socket and its outputs in a private folder."""

    name = "task-spooler"

    def __init__(self, plan: Plan) -> None:
        self._tsp = _program("tsp")
        self._folder = plan.scratch / "tsp"
        self._folder.mkdir()
        self._env = os.environ | {
            "TS_SOCKET": str(self._folder / "socket"),
            "TMPDIR": str(self._folder),
            "TS_MAXFINISHED": "2000",
            "TS_MAXCONN": "100",
        }
        self._run("-S", "8")

    def _run(self, *args: str) -> str:
        return subprocess.run(
            [self._tsp, *args], env=self._env, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
        ).stdout.strip()

    def one(self) -> float:
        begun = time.time_ns()
        job = self._run("date", "+%s%N")
        self._run("-w", job)
        return (int(self._run("-c", job)) - begun) / 1e6

    def thousand(self) -> float:
        self._run("-C")
        begun = time.monotonic()
        subprocess.run(
            ["sh", "-c", f"i=0; while [ $i -lt 1000 ]; do {self._tsp} -n true; i=$((i+1)); done"],
            env=self._env,
            check=True,
            capture_output=True,
        )
        while any(" running " in x or " queued " in x for x in self._run().splitlines()[1:]):
            time.sleep(0.05)
        return time.monotonic() - begun

    def close(self) -> None:
        subprocess.run([self._tsp, "-K"], env=self._env, check=False, capture_output=True)
        shutil.rmtree(self._folder, ignore_errors=True)


# ---------------------------------------------------------------------- Slurm

NODES = ("n1", "n2", "n3", "n4")


class Slurm:
    """munged, slurmctld and four slurmd of two CPUs; no accounting, tuned to start batch jobs without its delays."""

    name = "Slurm sbatch"

    def __init__(self, plan: Plan) -> None:
        self._sbin = {
            x: _program(x) for x in ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "sinfo")
        }
        self._folder = plan.scratch / "slurm"
        self._folder.mkdir(mode=0o755)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._env = os.environ | {"SLURM_CONF": str(self._folder / "slurm.conf")}
        self._configure()
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _configure(self) -> None:
        folder, user = self._folder, getpass.getuser()
        for name in ("munge", "state", "spool"):
            (folder / name).mkdir(mode=0o711)
        key = folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        control, *ports = free_ports(1 + len(NODES))
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 23
        nodes = "".join(
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory={memory} State=UNKNOWN\n"
            for name, port in zip(NODES, ports, strict=True)
        )
        (folder / "slurm.conf").write_text(
            f"ClusterName=bench\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort={control}\n"
            f"SlurmUser={user}\nSlurmdUser={user}\nAuthType=auth/munge\nAuthInfo=socket={folder}/munge/socket\n"
            f"CredType=cred/munge\nStateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool/%n\n"
            f"SlurmctldPidFile={folder}/slurmctld.pid\nSlurmdPidFile={folder}/slurmd-%n.pid\n"
            f"SlurmctldLogFile={folder}/slurmctld.log\nSlurmdLogFile={folder}/slurmd-%n.log\n"
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n"
            "AccountingStorageType=accounting_storage/none\nSlurmdParameters=config_overrides\nReturnToService=2\n"
            "MpiDefault=none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nSchedulerType=sched/backfill\n"
            "SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=10,max_rpc_cnt=0\n"
            "MaxArraySize=10001\nMaxJobCount=20000\nMinJobAge=60\n"
            f"{nodes}PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        )
        (folder / "cgroup.conf").write_text("CgroupPlugin=autodetect\n")

    def _start(self) -> None:
        folder, munge = self._folder, self._folder / "munge"
        self._spawn(
            *(self._sbin["munged"], "-F", "--force", f"--socket={munge}/socket", f"--key-file={munge}/key"),
            *(f"--log-file={munge}/log", f"--pid-file={munge}/pid", f"--seed-file={munge}/seed"),
        )
        self._until("munged", (munge / "socket").exists)
        self._spawn(self._sbin["slurmctld"], "-D")
        self._until("slurmctld", lambda: self._ok("scontrol", "ping"))
        for node in NODES:
            (folder / "spool" / node).mkdir()
            self._spawn(self._sbin["slurmd"], "-D", "-N", node)
        (folder / "out").mkdir()
        self._until("its nodes", lambda: self._out("sinfo", "-h", "-N", "-o", "%t").split() == [b"idle"] * len(NODES))

    def _spawn(self, *command: str) -> None:
        with (self._folder / "out.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    command,
                    env=self._env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=_dies_with_us,  # noqa: PLW1509  as above
                )
            )

    def _out(self, program: str, *args: str) -> bytes:
        return subprocess.run([self._sbin[program], *args], env=self._env, check=False, capture_output=True).stdout

    def _ok(self, program: str, *args: str) -> bool:
        command = [self._sbin[program], *args]
        return subprocess.run(command, env=self._env, check=False, capture_output=True).returncode == 0

    def _until(self, what: str, ready: Any, timeout_s: float = 30.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not ready():
            if time.monotonic() > deadline or any(p.poll() is not None for p in self._processes):
                raise Absent(f"{what} did not come up")
            time.sleep(0.05)

    def one(self) -> float:
        """sbatch, from before its start as a program."""
        out = self._folder / "out" / "one"
        out.unlink(missing_ok=True)
        begun = time.time_ns()
        self._submit(out, "--wrap", "exec date +%s%N")
        while not (out.exists() and (text := out.read_text()).endswith("\n")):
            time.sleep(0.005)
        took = (int(text) - begun) / 1e6
        self._until("an empty queue", lambda: not self._out("squeue", "-h").strip())
        return took

    def srun(self) -> float:
        begun = time.time_ns()
        return (int(self._out("srun", "-n1", "date", "+%s%N")) - begun) / 1e6

    def thousand(self) -> float:
        begun = time.monotonic()
        self._submit(Path("/dev/null"), "--array=1-1000", "--wrap", "true")
        while self._out("squeue", "-h", "-o", "%i").strip():
            time.sleep(0.1)
        return time.monotonic() - begun

    def _submit(self, out: Path, *args: str) -> None:
        command = [self._sbin["sbatch"], "--parsable", "-o", str(out), "-D", str(self._folder), *args]
        subprocess.run(command, env=self._env, check=True, capture_output=True)

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports
