"""Whose process is it: by the environment, by the ancestors, by the control group."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nvml_fixtures import FakeNvml
from nvml_state import GIB, card_uuid

from tenure.domain.ids import CardId, Instant, JobId
from tenure.telemetry.nvml import CardSample, GpuProcess
from tenure.telemetry.owners import Owner, OwnerKind, Owners, attribute, parse_cgroup, parse_environ, parse_stat

POD = "3f2c1f5e-8c1b-4f2a-9d0e-1234567890ab"
POD_ = POD.replace("-", "_")
BOX = "a1" * 32


@pytest.mark.parametrize(
    ("text", "kind", "owner_id", "details"),
    [
        (
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD_}.slice/cri-containerd-{BOX}.scope",
            "pod",
            POD,
            {"container": BOX, "runtime": "containerd"},
        ),
        (f"0::/kubepods/besteffort/pod{POD}/{BOX}", "pod", POD, {"container": BOX}),
        (f"0::/../../kubepods-pod{POD_}.slice/cri-containerd-{BOX}.scope", "pod", POD, {"container": BOX, "runtime": "containerd"}),
        (f"0::/kubepods-pod{POD_}.slice:cri-containerd:{BOX}", "pod", POD, {"container": BOX, "runtime": "containerd"}),
        (f"11:memory:/kubepods/burstable/pod{POD}/{BOX}\n1:name=systemd:/", "pod", POD, {"container": BOX}),
        (f"4:memory:/kubepods.slice/kubepods-pod{POD_}.slice/docker-{BOX}.scope", "pod", POD, {"container": BOX, "runtime": "docker"}),
        (f"0::/kubepods.slice/kubepods-pod{POD_}.slice/crio-{BOX}.scope/container", "pod", POD, {"container": BOX, "runtime": "crio"}),
        (
            f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{POD_}.slice/cri-containerd-{BOX}.scope",
            "pod",
            POD,
            {"container": BOX, "runtime": "containerd"},
        ),
        (f"0::/kubepods/pod{'b2' * 16}/{BOX}", "pod", "b2" * 16, {"container": BOX}),
        (f"4:memory:/docker/{BOX}", "container", BOX, {"runtime": "docker"}),
        (f"0::/system.slice/docker-{BOX}.scope", "container", BOX, {"runtime": "docker"}),
        (f"0::/machine.slice/libpod-{BOX}.scope/container", "container", BOX, {"runtime": "podman"}),
        ("4:memory:/slurm/uid_1001/job_4242/step_0/task_1", "slurm", "4242", {"step": "0"}),
        ("0::/system.slice/slurmstepd.scope/job_4242/step_batch/user/task_0", "slurm", "4242", {"step": "batch"}),
        ("0::/system.slice/node1_slurmstepd.scope/job_7/step_extern", "slurm", "7", {"step": "extern"}),
        ("0::/user.slice/user-1000.slice/session-3.scope", "login", "1000", {"session": "3"}),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-u12.scope", "login", "1000", {"unit": "run-u12.scope"}),
        ("0::/user.slice/user-1000.slice/user@1000.service", "login", "1000", {}),
        ("0::/system.slice/jupyter.service", "service", "jupyter.service", {}),
        ("0::/system.slice/system-vllm.slice/vllm@1.service", "service", "vllm@1.service", {}),
        ("3:cpu:/\n0::/user.slice/user-5.slice/session-c1.scope", "login", "5", {"session": "c1"}),
    ],
)  # fmt: skip
def test_a_control_group_names_its_owner(text: str, kind: str, owner_id: str, details: dict[str, str]) -> None:
    assert parse_cgroup(text) == Owner(kind=OwnerKind(kind), id=owner_id, details=details)


@pytest.mark.parametrize("text", ["", "0::/", "garbage", "1:cpu", "0::/init.scope", "0::/user.slice", f"0::/{BOX}"])
def test_a_path_that_says_nothing_names_nobody(text: str) -> None:
    assert parse_cgroup(text) is None


def test_the_environment_needs_job_and_directory() -> None:
    assert parse_environ(b"A=1\0TENURE_JOB_ID=37_4\0TENURE_RUN_DIR=/h\xc3\xa4 =x/37_4.1\0") == ("37_4", "/hä =x/37_4.1")
    assert parse_environ(b"TENURE_JOB_ID=37\0") is None
    assert parse_environ(b"TENURE_JOB_ID=\0TENURE_RUN_DIR=/x\0") is None
    assert parse_environ(b"NOT_TENURE_JOB_ID=1\0=\0TENURE_RUN_DIR\0") is None


def test_a_command_may_hold_brackets_and_spaces() -> None:
    rest = " ".join(str(n) for n in range(4, 53))
    assert parse_stat(f"77 (a) b) (c) S 5 {rest}") == (5, 21, "a) b) (c")


# --- real processes

Start = Callable[..., tuple[int, str]]  # the pid, and the line


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes that say a line when they are there, and then wait until the test has ended."""
    started: list[subprocess.Popen[str]] = []

    def begin(env: dict[str, str], script: str = "echo; read line") -> tuple[int, str]:
        process = subprocess.Popen(
            ["sh", "-c", script],
            env={"PATH": os.environ["PATH"], **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        return process.pid, process.stdout.readline().strip()  # a process in the middle of its exec has no environment

    yield begin
    for process in started:
        process.communicate(timeout=20)


def test_a_process_of_a_run_is_known_by_its_environment(start: Start) -> None:
    pid, _ = start({"TENURE_JOB_ID": "12", "TENURE_RUN_DIR": "/home/runs/12.1"})
    owner = Owners().owner(pid)
    assert (owner.kind, owner.job, owner.run_dir) == (OwnerKind.JOB, "12", "/home/runs/12.1")
    assert (owner.command, owner.user) == ("sh", pwd.getpwuid(os.getuid()).pw_name)


def test_a_child_with_an_empty_environment_is_known_by_its_ancestors(start: Start) -> None:
    inner = "env -i sh -c 'echo $$; read line'; :"
    pid = int(start({"TENURE_JOB_ID": "12", "TENURE_RUN_DIR": "/r/12.1"}, inner)[1])
    assert b"TENURE" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert Owners().owner(pid).job == "12"


def test_a_root_that_is_known_stands_for_all_below_it(start: Start) -> None:
    parent, line = start({}, "sh -c 'echo $$; read line'; :")
    pid, owners = int(line), Owners()
    assert owners.owner(pid).job is None
    assert owners.owner(pid, {parent: (JobId("9"), "/r/9.1")}).job == "9"


def test_a_process_that_is_gone_has_no_owner() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert Owners().owner(process.pid) == Owner(kind=OwnerKind.UNKNOWN)


def write_process(
    proc: Path, pid: int, *, started: int, parent: int = 1, environ: bytes = b"", cgroup: str = ""
) -> None:
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    (folder / "stat").write_text(f"{pid} (python) S {parent} {' '.join(['0'] * 17)} {started} 0")
    (folder / "environ").write_bytes(environ)
    (folder / "cgroup").write_text(cgroup)


def test_a_pid_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    owners = Owners(tmp_path)
    write_process(tmp_path, 7, started=100, environ=b"TENURE_JOB_ID=1\0TENURE_RUN_DIR=/r/1.1\0")
    assert owners.owner(7).job == "1"
    write_process(tmp_path, 7, started=100, environ=b"")  # it exec'd itself clean: still the same process
    assert owners.owner(7).job == "1"
    write_process(tmp_path, 7, started=200, cgroup="0::/system.slice/jupyter.service")
    assert owners.owner(7).id == "jupyter.service"


def test_a_ring_of_parents_ends(tmp_path: Path) -> None:
    write_process(tmp_path, 7, started=1, parent=8)
    write_process(tmp_path, 8, started=1, parent=7)
    assert Owners(tmp_path).owner(7).kind is OwnerKind.UNKNOWN


# --- memory


def sample(card: str, *processes: tuple[int, int | None]) -> CardSample:
    found = tuple(GpuProcess(pid=pid, memory=memory) for pid, memory in processes)
    return CardSample(card=CardId(card), at=Instant(0), processes=found)


def test_memory_is_summed_by_job_and_card_and_strangers_are_named(tmp_path: Path) -> None:
    ours = f"{tmp_path}/runs"
    for pid, job, runs in ((1001, "1", ours), (1002, "1", ours), (1003, "2", ours), (1004, "1", "/elsewhere/runs")):
        environ = f"TENURE_JOB_ID={job}\0TENURE_RUN_DIR={runs}/{job}.1\0".encode()
        write_process(tmp_path, pid, started=1, environ=environ)
    write_process(tmp_path, 1005, started=1, cgroup=f"0::/kubepods/pod{POD}/{BOX}")
    samples = [
        sample("A", (1001, 3 * GIB), (1002, 2 * GIB), (1004, GIB), (1005, 7 * GIB)),
        sample("B", (1001, GIB), (1003, None)),
        CardSample(card=CardId("C"), at=Instant(0), error="GPU is lost"),
    ]
    found = attribute(samples, owners=Owners(tmp_path), runs_dir=Path(ours))
    assert found.by_job == {"1": {"A": 5 * GIB, "B": GIB}, "2": {"B": 0}}
    assert found.of_job(JobId("1")) == 6 * GIB
    assert found.of_job(JobId("3")) == 0
    assert [(h.pid, h.owner.kind) for h in found.strangers] == [(1004, "job"), (1005, "pod")]
    assert len(found.holdings) == 6


def test_runs_behind_a_link_are_still_ours(tmp_path: Path) -> None:
    (tmp_path / "real" / "runs").mkdir(parents=True)
    (tmp_path / "home").symlink_to(tmp_path / "real")
    environ = f"TENURE_JOB_ID=1\0TENURE_RUN_DIR={tmp_path}/real/runs/1.1\0".encode()
    write_process(tmp_path, 1001, started=1, environ=environ)
    found = attribute([sample("A", (1001, GIB))], owners=Owners(tmp_path), runs_dir=tmp_path / "home" / "runs")
    assert found.by_job == {"1": {"A": GIB}}


def test_owners_that_left_are_forgotten(tmp_path: Path) -> None:
    owners = Owners(tmp_path)
    for pid in range(1000, 1100):
        write_process(tmp_path, pid, started=1, environ=b"TENURE_JOB_ID=1\0TENURE_RUN_DIR=/r/1.1\0")
    attribute([sample("A", *((pid, 1) for pid in range(1000, 1100)))], owners=owners)
    attribute([sample("A", (1000, 1))], owners=owners)
    assert list(owners._known) == [1000]


def test_memory_of_a_real_job_process_is_attributed_through_the_library(
    fake_nvml: Callable[..., FakeNvml], start: Start
) -> None:
    fake = fake_nvml(cards=2)
    job, _ = start({"TENURE_JOB_ID": "5", "TENURE_RUN_DIR": "/home/runs/5.1"})
    stranger, _ = start({})
    fake.state.use(1, job, 4 * GIB)
    fake.state.use(1, stranger, GIB)
    code = """
import json
from pathlib import Path
from tenure.telemetry.monitor import CardMonitor
from tenure.telemetry.owners import Owners, attribute
with CardMonitor() as monitor:
    found = attribute(monitor.sample(), owners=Owners(), runs_dir=Path("/home/runs"))
print(json.dumps([found.by_job, [holding.pid for holding in found.strangers]]))
"""
    looked = fake.start(code)
    out, _ = looked.communicate(timeout=10)
    assert out.strip() == f'[{{"5": {{"{card_uuid(1)}": {4 * GIB}}}}}, [{stranger}]]'
