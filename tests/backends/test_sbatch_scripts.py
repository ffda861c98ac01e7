"""What an #SBATCH script finds: SLURM_*, `srun` on its PATH, and output where it asked for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tenure.backends.local import srun
from tenure.backends.local.output import expand
from tenure.domain.attempt import AttemptSpec, Stop, StopKind
from tenure.domain.job import ArraySpec, LogSpec, StopSignal
from tenure.domain.lifecycle import Outcome

from .local_rig import BeginsWith, LocalRig, alive, eventually


def script(rig: LocalRig, body: str, **fields: object) -> AttemptSpec:
    return rig.job(script=f"#!/bin/bash\n{body}\n", sbatch=True, **fields)


def output(attempt: AttemptSpec) -> str:
    return (Path(attempt.run_dir) / "stdout.log").read_text()


def test_the_variables_of_a_script(rig: LocalRig, tmp_path: Path) -> None:
    attempt = script(
        rig, "env | grep ^SLURM_ | sort", job_id="37_4", number=2, name="train", tasks=4, cpus=8000,
        array=ArraySpec(indices=(2, 4, 6)), memory=2 << 30, cards=[("GPU-a", "GPU-b")],
    )  # fmt: skip
    rig.backend.start(attempt)
    rig.news.settled(attempt.run_id)
    env = dict(line.split("=", 1) for line in output(attempt).splitlines())
    wanted = {
        "SLURM_JOB_ID": "37_4", "SLURM_JOB_NAME": "train", "SLURM_NTASKS": "4", "SLURM_CPUS_PER_TASK": "2", "SLURM_ARRAY_JOB_ID": "37",
        "SLURM_ARRAY_TASK_ID": "4", "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_ARRAY_TASK_MIN": "2", "SLURM_ARRAY_TASK_MAX": "6",
        "SLURM_ARRAY_TASK_STEP": "2", "SLURM_GPUS_ON_NODE": "2",
        "SLURM_RESTART_COUNT": "1", "SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_NNODES": "1", "SLURM_MEM_PER_NODE": "2048",
    }  # fmt: skip
    assert {name: env.get(name) for name in wanted} == wanted
    assert env["SLURM_JOB_NODELIST"]


def test_srun_starts_the_tasks_with_their_numbers(rig: LocalRig) -> None:
    attempt = script(
        rig,
        "srun -l bash -c 'echo $SLURM_PROCID $SLURM_LOCALID $SLURM_NTASKS $SLURM_STEP_ID'; srun -n 1 printenv SLURM_STEP_ID",
        tasks=3,
    )
    rig.backend.start(attempt)
    assert rig.news.settled(attempt.run_id).outcome is Outcome.COMPLETED
    told = output(attempt).splitlines()
    assert sorted(told[:3]) == ["0: 0 0 3 0", "1: 1 1 3 0", "2: 2 2 3 0"]
    assert told[3] == "1"


@pytest.mark.parametrize("shebang", ["#!/bin/bash -l", "#!/bin/bash --login", "#!/usr/bin/env -S bash -l"])
def test_a_login_shell_keeps_srun_and_what_bash_env_said(rig: LocalRig, tmp_path: Path, shebang: str) -> None:
    """/etc/profile sets PATH anew; an `srun` of the machine's own must not be taken for ours."""
    (tmp_path / "mine.sh").write_text("MINE=kept\n")
    body = f"{shebang}\necho $MINE; srun -n 2 bash -c 'echo task $SLURM_PROCID' | sort\n"
    env = {"PATH": "/usr/bin:/bin", "BASH_ENV": str(tmp_path / "mine.sh")}
    attempt = rig.job(script=body, sbatch=True, tasks=2, env=env)
    rig.backend.start(attempt)
    assert rig.news.settled(attempt.run_id).outcome is Outcome.COMPLETED
    assert output(attempt).splitlines() == ["kept", "task 0", "task 1"]


def test_the_word_after_an_option_that_is_not_fulfilled_is_no_command(rig: LocalRig) -> None:
    attempt = script(
        rig, "srun -C gpu --cpu-freq high --signal=USR1 -q long -x n1,n2 echo said; srun --multi-prog tasks.conf"
    )
    rig.backend.start(attempt)
    assert rig.news.settled(attempt.run_id).exit_code == 2
    assert Path(attempt.run_dir, "stdout.log").read_text() == "said\n"
    complaints = Path(attempt.run_dir, "stderr.log").read_text().splitlines()
    assert [line.split("'")[1] for line in complaints[:-1]] == ["-C", "--cpu-freq", "--signal=USR1", "-x"]
    assert "start one srun for each program" in complaints[-1]


def test_srun_ends_with_the_highest_code_and_names_what_it_does_not_know(rig: LocalRig) -> None:
    attempt = script(rig, "srun -n 3 --exclusive --frobnicate -c2 bash -c 'exit $((SLURM_PROCID * 3))'")
    rig.backend.start(attempt)
    assert rig.news.settled(attempt.run_id).exit_code == 6
    told = (Path(attempt.run_dir) / "stderr.log").read_text()
    assert "--frobnicate" in told
    assert "--exclusive" not in told


def test_srun_ends_the_others_when_asked_to(rig: LocalRig) -> None:
    attempt = script(rig, "srun -n 3 -K bash -c 'if [ $SLURM_PROCID = 1 ]; then exit 5; fi; sleep 900'")
    rig.backend.start(attempt)
    assert rig.news.settled(attempt.run_id).exit_code == 5


def test_srun_forwards_a_stop_and_its_tasks_may_save(rig: LocalRig, tmp_path: Path) -> None:
    body = "srun -n 2 bash -c 'trap \"touch saved.$SLURM_PROCID; exit 0\" TERM; touch up.$SLURM_PROCID; while :; do sleep 0.05; done'"
    attempt = script(rig, body)
    rig.backend.start(attempt)
    eventually(lambda: all((tmp_path / f"up.{k}").exists() for k in range(2)))
    rig.backend.stop(attempt.run_id, attempt.run_dir, Stop(kind=StopKind.PREEMPT, reason="Preempted"))
    assert rig.news.settled(attempt.run_id).outcome is Outcome.INTERRUPTED
    assert all((tmp_path / f"saved.{k}").exists() for k in range(2))
    assert alive(attempt) == []


@pytest.mark.parametrize(("batch_only", "who"), [(True, "script"), (False, "task")])
def test_the_warning_reaches_the_script_or_the_tasks(rig: LocalRig, tmp_path: Path, batch_only: bool, who: str) -> None:
    body = (
        "trap 'echo script; touch done' USR1\n"
        "bash -c 'trap \"echo task; touch done\" USR1; touch ready; while [ ! -e done ]; do sleep 0.05; done' &\n"
        "while [ ! -e done ]; do sleep 0.05; done\nwait"
    )
    attempt = script(
        rig, body, time_limit_s=60.0, stop_signal=StopSignal(signal="USR1", before_s=59.3, batch_only=batch_only)
    )
    rig.supervise(attempt, clock=BeginsWith(tmp_path / "ready"))
    assert rig.news.settled(attempt.run_id).outcome is Outcome.COMPLETED
    assert output(attempt).split() == [who]


def test_output_goes_where_it_was_asked_for_and_is_found_in_the_run_directory(rig: LocalRig, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    attempt = script(rig, "echo out; echo err >&2", job_id="12", name="fit", logs=LogSpec(output="logs/%x-%j.log"))
    rig.backend.start(attempt)
    rig.news.settled(attempt.run_id)
    assert (tmp_path / "logs" / "fit-12.log").read_text() == "out\nerr\n"  # one file for both, as Slurm has it
    assert output(attempt) == "out\nerr\n"


@pytest.mark.parametrize(("append", "text"), [(True, "old\nnew\n"), (False, "new\n")])
def test_the_open_mode(rig: LocalRig, tmp_path: Path, append: bool, text: str) -> None:
    (tmp_path / "out").write_text("old\n")
    attempt = script(rig, "echo new", logs=LogSpec(output="out", error="err", append=append))
    rig.backend.start(attempt)
    rig.news.settled(attempt.run_id)
    assert (tmp_path / "out").read_text() == text
    assert (tmp_path / "err").read_text() == ""


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("%x-%j.out", "fit-37_4.out"), ("%A_%a", "37_4"), ("%A-%4a", "37-0004"), ("r%t", "r2"), ("100%%", "100%"), ("%q%", "%q%"),
        ("%3t-%99a", "002-0000000004"), ("%5x-%7", "fit-%7"), ("a\\%j", "a%j"), ("%", "%"),
    ],
)  # fmt: skip
def test_patterns(pattern: str, name: str) -> None:
    assert expand(pattern, job={"name": "fit"}, job_id="37_4", rank=2) == name


@pytest.mark.parametrize(
    ("arguments", "ntasks"),
    [
        (["-n4", "x"], "4"),
        (["--ntasks=4", "x"], "4"),
        (["-n", "4", "x"], "4"),
        (["-ul", "-n=4", "x", "-n5"], "4"),
        (["x"], None),
    ],
)
def test_options_of_srun(arguments: list[str], ntasks: str | None) -> None:
    options, command = srun._parse(arguments)
    assert options.get("ntasks") == ntasks
    assert command[0] == "x"


def test_srun_says_what_it_needs() -> None:
    done = subprocess.run([sys.executable, "-I", srun.__file__], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no command" in done.stderr


def test_outputs_of_srun_are_padded_too(tmp_path: Path) -> None:
    words = ["-n2", "-o", "out-%2t-%5j", "sh", "-c", "echo $SLURM_PROCID"]
    env = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "128"}
    subprocess.run([sys.executable, "-I", srun.__file__, *words], cwd=tmp_path, env=env, check=True)
    assert [(tmp_path / f"out-0{task}-00128").read_text() for task in (0, 1)] == ["0\n", "1\n"]


def test_a_stop_while_srun_still_starts_its_tasks_reaches_them_all() -> None:
    words = ["-n", "2000", "sh", "-c", "echo begun; exec sleep 600"]
    with subprocess.Popen([sys.executable, "-I", srun.__file__, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as step:  # fmt: skip
        assert step.stdout is not None
        step.stdout.readline()
        step.terminate()
        step.stdout.read()  # until the last task has gone: one that was missed would sleep for ten minutes
        assert step.wait() == 143
