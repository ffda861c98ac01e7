"""What the backend adds to the complete environment of an attempt: only what it alone knows."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from .shims import add_to

__all__ = ["free_port", "of_process", "of_script"]


PORTS = range(10_000, 20_000)  # below what the kernel gives to outgoing connections, and below the ports of models
TRIES = 100


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody has now.  Rank 0 binds it when it is up, which may be seconds later."""
    for _ in range(TRIES):
        port = PORTS[int.from_bytes(os.urandom(4), "little") % len(PORTS)]
        with suppress(OSError), socket.socket() as sock:
            sock.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no free port between {PORTS.start} and {PORTS.stop - 1} for MASTER_PORT")


def of_process(spec: Mapping[str, Any], *, rank: int, slot: int, port: int | None) -> dict[str, str]:
    """The environment of one process: its card, its rank, its index, its directory."""
    job = spec["job"]
    env: dict[str, str] = dict(spec["env"])
    env["TENURE_RUN_DIR"] = spec["run_dir"]  # how a survivor is recognised when its supervisor is gone
    env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    cards = spec["processes"][slot]["cards"] if slot < len(spec["processes"]) else ()
    env["CUDA_VISIBLE_DEVICES"] = ",".join(cards)
    if job.get("workdir"):
        env["PWD"] = job["workdir"]
    if job.get("gang"):
        env["RANK"] = env["LOCAL_RANK"] = str(rank)
        env["WORLD_SIZE"] = env["LOCAL_WORLD_SIZE"] = str(len(spec["processes"]))
        env["MASTER_ADDR"] = "127.0.0.1"
        env["MASTER_PORT"] = str(port)
    if job.get("indexed"):
        env["JOB_COMPLETION_INDEX"] = str(rank)
    if job.get("sbatch"):
        env = {**of_script(spec), **env}
        add_to(env, spec["state_dir"], job.get("script"))
    return env


def of_script(spec: Mapping[str, Any]) -> dict[str, str]:
    """SLURM_* as `sbatch` sets them for a script on one node.  What the caller's environment already says wins."""
    job, job_id = spec["job"], spec["job_id"]
    base, _, index = job_id.partition("_")
    host = socket.gethostname().split(".")[0]
    tasks = int(job.get("tasks") or 1)
    cpus = max(1, int(job.get("cpus") or 0) // 1000)
    per_task = max(1, cpus // tasks)
    workdir = job.get("workdir") or "/"
    env = {
        "SLURM_JOB_ID": job_id, "SLURM_JOBID": job_id, "SLURM_JOB_NAME": job.get("name", ""), "SLURM_JOB_PARTITION": job.get("queue") or "default",
        "SLURM_NTASKS": str(tasks), "SLURM_NPROCS": str(tasks), "SLURM_CPUS_PER_TASK": str(per_task), "SLURM_TASKS_PER_NODE": str(tasks),
        "SLURM_NNODES": "1", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": host, "SLURM_NODELIST": host, "SLURMD_NODENAME": host,
        "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_GTIDS": "0", "SLURM_CPUS_ON_NODE": str(cpus),
        "SLURM_JOB_CPUS_PER_NODE": str(cpus), "SLURM_SUBMIT_DIR": workdir, "SLURM_SUBMIT_HOST": host, "SLURM_CLUSTER_NAME": "tenure",
        "SLURM_JOB_UID": str(os.getuid()), "SLURM_JOB_USER": job.get("owner") or "", "SLURM_JOB_ACCOUNT": job.get("project") or "",
        "SLURM_RESTART_COUNT": str(max(0, int(spec["number"]) - 1)), "SLURM_EXPORT_ENV": "ALL",
    }  # fmt: skip
    if job.get("memory"):
        env["SLURM_MEM_PER_NODE"] = str(int(job["memory"]) // (1024 * 1024))
    if cards := spec["processes"][0]["cards"]:
        env["SLURM_GPUS_ON_NODE"] = str(len(cards))
    if index:
        env["SLURM_ARRAY_JOB_ID"], env["SLURM_ARRAY_TASK_ID"] = base, index
        array = job.get("array")
        if array:
            env["SLURM_ARRAY_TASK_COUNT"] = str(array["count"])
            env["SLURM_ARRAY_TASK_MIN"], env["SLURM_ARRAY_TASK_MAX"] = str(array["min"]), str(array["max"])
            env["SLURM_ARRAY_TASK_STEP"] = str(array["step"])
    return env
