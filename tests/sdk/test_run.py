"""A run from opening to closing, with a platform and without one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import tenure
from tenure.sdk.record import Record, RecordWriter, quiet, read_record

from .conftest import Program

Start = Callable[..., Program]


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No platform, and a working directory of its own."""
    for name in list(os.environ):
        if name.startswith("TENURE_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def only_run(root: Path) -> Record:
    (found,) = [path for path in root.iterdir() if path.is_dir()]
    return read_record(found)


# --- without a platform ---------------------------------------------------------------------------------------------


def test_a_run_makes_its_own_directory_and_says_everything(tmp_path: Path) -> None:
    with tenure.Run("first try", {"lr": 0.1, "path": Path("a/b")}) as run:
        assert tenure.current_run() is run
        with run.phase("train"):
            for step in range(3):
                run.log(step=step, loss=1.0 / (step + 1))
            run.log({"train/acc": 0.5}, step=3)
        made = run.checkpoint(3, b"weights")
        run.result(accuracy=0.9, confusion=[[1, 2], [3, 4]])
        run.artifact("plots/loss.json", {"loss": [1, 2]})
        (tmp_path / "model.bin").write_bytes(b"m" * 10)
        kept = run.artifact(tmp_path / "model.bin")
    assert tenure.current_run() is None
    assert made.path.read_bytes() == b"weights"
    assert kept.read_bytes() == b"m" * 10
    assert json.loads((run.directory / "artifacts/plots/loss.json").read_text()) == {"loss": [1, 2]}

    record = read_record(run.directory)
    assert run.directory.parent == tmp_path / "runs"
    assert (tmp_path / "runs" / ".gitignore").read_text() == "*\n"
    assert record.run_id == run.id == run.directory.name
    assert "first-try" in run.id
    assert record.config == {"lr": 0.1, "path": "a/b"}
    assert record.results == {"accuracy": 0.9, "confusion": [[1, 2], [3, 4]]}
    assert {name: metric["count"] for name, metric in record.metrics.items()} == {"loss": 3, "train/acc": 1}
    assert [artifact["name"] for artifact in record.artifacts] == ["plots/loss.json", "model.bin"]
    assert (record.outcome, record.quiet_after_s) == ("completed", 300.0)
    assert record.environment["python"]["version"] == sys.version.split()[0]  # type: ignore[index]
    assert record.code["digest"]
    assert record.imported["digest"]
    assert record.last_sign_of_life is not None
    assert (run.directory / "heartbeat").exists()


def test_tenure_home_decides_and_names_sort_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / '家 with "spaces"'
    monkeypatch.setenv("TENURE_HOME", str(home))
    ids = []
    for _ in range(3):
        with tenure.Run('训练 "x" $(rm) \n/../..' + "长" * 100) as run:
            ids.append(run.id)
    assert sorted(ids) == ids
    assert len(set(ids)) == 3
    assert sorted(path.name for path in (home / "runs").iterdir() if path.is_dir()) == ids


def test_code_that_raised_failed_and_says_why(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), tenure.Run("x"):
        _ = 1 / 0
    record = only_run(tmp_path / "runs")
    assert record.outcome == "failed"
    assert record.closed is not None
    assert record.closed["reason"] == "ZeroDivisionError"
    assert record.closed["message"] == "ZeroDivisionError: division by zero"
    assert "test_run.py" in record.closed["traceback"]


@pytest.mark.parametrize(("code", "outcome", "exit_code"), [(None, "completed", 0), (0, "completed", 0), (3, "failed", 3), ("bad", "failed", 1), (143, "failed", 143)])  # fmt: skip
def test_sys_exit_is_what_its_code_says(tmp_path: Path, code: object, outcome: str, exit_code: int) -> None:
    with pytest.raises(SystemExit), tenure.Run("x"):
        sys.exit(code)  # type: ignore[arg-type]
    record = only_run(tmp_path / "runs")
    assert record.outcome == outcome
    assert record.closed is not None
    assert record.closed["exit_code"] == exit_code


def test_handlers_and_environment_are_as_they_were(tmp_path: Path) -> None:
    before = (
        signal.getsignal(signal.SIGTERM),
        signal.getsignal(signal.SIGINT),
        dict(os.environ),
        threading.active_count(),
    )
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with tenure.Run("x") as run:
            run.log(step=1, x=1)
    after = (
        signal.getsignal(signal.SIGTERM),
        signal.getsignal(signal.SIGINT),
        dict(os.environ),
        threading.active_count(),
    )
    assert after == before
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_it_continues_the_chain_by_id_and_by_directory(tmp_path: Path) -> None:
    with tenure.Run("x") as first:
        first.checkpoint(5, b"five")
    with tenure.Run("x", resume_from=first.id) as second:
        assert second.resume().step == 5  # type: ignore[union-attr]
    with tenure.Run("x", resume_from=str(second.directory)) as third:  # nothing of its own: the one before it has
        found = third.resume()
        assert found is not None
        assert found.read() == b"five"
        third.checkpoint(6, b"six")
        assert third.resume().step == 6  # type: ignore[union-attr]
    record = read_record(third.directory)
    assert record.retry_of == second.id
    assert record.resumed_from is not None
    with pytest.raises(FileNotFoundError, match="no run 'nothing'"), tenure.Run("x", resume_from="nothing"):
        pass


@pytest.mark.parametrize("name", ["../out", "/etc/passwd", "", ".."])
def test_an_artifact_stays_below_the_run(name: str) -> None:
    with tenure.Run("x") as run, pytest.raises(ValueError, match="path below"):
        run.artifact(name, b"x")


def test_what_is_too_large_or_missing_is_said() -> None:
    with tenure.Run("x") as run:
        with pytest.raises(ValueError, match="write it as an artifact"):
            run.result(big="x" * (2 << 20))
        with pytest.raises(FileNotFoundError, match="is no file"):
            run.artifact("missing.bin")
        with pytest.raises(ValueError, match="quiet_after_s=0"):
            tenure.Run("y", quiet_after_s=0)


def test_a_read_only_home_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TENURE_HOME", str(tmp_path / "file"))
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(OSError, match="file"), tenure.Run("x"):
        pass
    assert signal.getsignal(signal.SIGTERM) == handler
    assert tenure.current_run() is None


def test_threads_of_the_run_log_together() -> None:
    with tenure.Run("x") as run:

        def work(number: int) -> None:
            for step in range(50):
                tenure.current_run().log(step=step, **{f"loss{number}": step})  # type: ignore[union-attr, arg-type]

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [metric["count"] for metric in read_record(run.directory).metrics.values()] == [50] * 8


# --- on the platform ------------------------------------------------------------------------------------------------


def test_on_the_platform_it_writes_where_it_is_told(on_platform: Start, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    program = on_platform("""
        import tenure
        @tenure.study
        def fit(run, epochs: int = 3):
            assert run.on_platform and run.job_id == "7" and run.attempt == 1 and run.id == "7.1"
            run.checkpoint(1, b"x")
            run.result(epochs=epochs)
        fit.main()
    """, "--epochs", "5", TENURE_CHECKPOINT_DIR=str(tmp_path / "shared"))  # fmt: skip
    assert program.ended() == (0, "", "")
    record = program.record
    assert record.results == {"epochs": 5}
    assert record.config == {"epochs": 5}
    assert record.name == "fit"
    assert record.code == {"digest": "submitted"}
    assert record.checkpoints[0]["path"].startswith(str(tmp_path / "shared"))
    assert not (tmp_path / "runs" / "7.1" / "checkpoints").exists()
    assert record.outcome == "completed"


def test_a_study_within_a_study_and_one_started_by_a_study(on_platform: Start, tmp_path: Path) -> None:
    program = on_platform("""
        import subprocess, sys, tenure
        @tenure.study
        def inner(run, x: int = 1):
            run.result(x=x)
            return x + 1
        @tenure.study
        def outer(run):
            assert inner(x=4) == 5
            subprocess.run([sys.executable, __file__, "inner"], check=True)
        if sys.argv[1:] == ["inner"]:
            inner.main([])
        outer.main()
    """)
    code, _, err = program.ended()
    assert code == 0, err
    record = program.record
    assert (record.outcome, record.results) == ("completed", {"x": 4})
    assert [phase["name"] for phase in record.phases] == ["inner"]
    (child,) = [path for path in (tmp_path / "runs").iterdir() if path.is_dir() and path.name != "7.1"]
    assert read_record(child).parent == "7.1"
    assert read_record(child).outcome == "completed"


def test_a_job_that_a_study_submitted_is_a_run_of_its_own(on_platform: Start, tmp_path: Path) -> None:
    with tenure.Run("submitter"):  # its environment reaches the job
        owner = os.environ["TENURE_RUN_OWNER"]
        program = on_platform(
            "import tenure\n@tenure.study\ndef main(run):\n    run.result(ok=run.id)\nmain.main()",
            TENURE_RUN_OWNER=owner,
        )
        assert program.ended()[0] == 0
    assert program.record.results == {"ok": "7.1"}


def test_two_studies_in_one_job_one_after_the_other(on_platform: Start) -> None:
    program = on_platform("""
        import subprocess, sys, tenure
        @tenure.study
        def main(run, fail: bool = False):
            if fail:
                raise ValueError("second")
        if len(sys.argv) > 1:
            main.main()
        subprocess.run([sys.executable, __file__, "--no-fail"])
        sys.exit(subprocess.run([sys.executable, __file__, "--fail"]).returncode)
    """)
    assert program.ended()[0] == 1
    assert program.record.outcome == "failed"


def test_the_ranks_of_a_gang_share_a_record(on_platform: Start) -> None:
    code = """
        import sys, tenure
        @tenure.study
        def main(run, fail: bool = False):
            run.log(step=1, **{f"rank{run.rank}": 1})
            run.checkpoint(1, str(run.rank))
            assert run.resume().read() == str(run.rank).encode()
            if fail:
                raise ValueError("rank fell")
        main.main()
    """
    assert on_platform(code, RANK="0", WORLD_SIZE="2").ended()[0] == 0
    program = on_platform(code, "--fail", RANK="1", WORLD_SIZE="2")
    assert program.ended()[0] == 1
    record = program.record
    assert record.outcome == "completed"  # as far as rank 0 knows
    assert record.members[1]["outcome"] == "failed"
    RecordWriter(program.run_dir, by="supervisor").closed("failed", exit_code=1, reason="GangMemberFailed")
    assert program.record.outcome == "failed"
    assert set(program.record.metrics) == {"rank0", "rank1"}


def test_a_full_disk_costs_numbers_but_never_a_claim(on_platform: Start) -> None:
    program = on_platform("""
        import os, resource, signal, tenure
        @tenure.study
        def main(run):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            size = os.path.getsize(run.directory / "record.jsonl")
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            for step in range(100):
                run.log(step=step, loss="x" * 1000)
            with run.phase("full"):
                pass
            try:
                run.result(accuracy=1)
            except OSError as problem:
                print("refused", problem.errno)
            try:
                run.checkpoint(1, b"x" * size * 2)
            except OSError as problem:
                print("refused", problem.errno)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            run.result(room=True)
        main.main()
    """)
    code, out, err = program.ended()
    assert (code, out) == (0, "refused 27\nrefused 27\n"), err
    assert err.count("are being lost") == 1
    record = program.record
    assert record.results == {"room": True}
    assert record.checkpoints == []
    assert record.lost_lines >= 90
    assert record.outcome == "completed"
    assert list((program.run_dir / "checkpoints").iterdir()) == []


def test_an_end_that_cannot_be_recorded_is_no_success(on_platform: Start) -> None:
    program = on_platform("""
        import os, resource, signal, tenure
        @tenure.study
        def main(run):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            size = os.path.getsize(run.directory / "record.jsonl")
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        main.main()
    """)
    code, _, err = program.ended()
    assert code == 74
    assert "main: the record could not be written: [Errno 27]" in err
    assert program.record.outcome is None


def test_a_frozen_run_is_reaped_and_heals_when_it_comes_back(on_platform: Start) -> None:
    program = on_platform("""
        import sys, tenure
        @tenure.study(quiet_after_s=0.5)
        def main(run):
            print("ready")
            sys.stdin.read()
        main.main()
    """).ready()
    program.signal(signal.SIGSTOP)
    silent_since = time.monotonic()
    time.sleep(0.6)  # the silence itself is what is tested
    assert quiet(program.record, time.monotonic() - silent_since)
    RecordWriter(program.run_dir, by="reaper").closed("failed", reason="Quiet")
    assert program.record.outcome == "failed"
    program.signal(signal.SIGCONT)
    deadline = time.monotonic() + 10
    while not program.record.healed:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert program.record.outcome is None
    assert program.process.stdin is not None
    program.process.stdin.close()
    program.process.stdin = None
    assert program.ended()[0] == 0
    assert (program.record.outcome, program.record.healed) == ("completed", True)


def test_the_heartbeat_beats_in_the_time_that_was_declared(on_platform: Start) -> None:
    program = on_platform("""
        import sys, tenure
        @tenure.study
        def main(run):
            run.quiet_after(0.5)
            print("ready")
            sys.stdin.read()
        main.main()
    """).ready()
    beats = set()
    deadline = time.monotonic() + 10
    while len(beats) < 4:
        assert time.monotonic() < deadline
        beats.add((program.run_dir / "heartbeat").stat().st_mtime_ns)
        time.sleep(0.02)
    assert program.record.quiet_after_s == 0.5


def test_killed_outright_it_stays_open_for_others_to_close(on_platform: Start) -> None:
    program = on_platform("""
        import sys, tenure
        @tenure.study
        def main(run):
            run.result(early=1)
            print("ready")
            sys.stdin.read()
        main.main()
    """).ready()
    program.signal(signal.SIGKILL)
    assert program.ended()[0] == -9
    assert program.record.outcome is None
    RecordWriter(program.run_dir, by="supervisor").closed("failed", exit_code=137, signal=9)
    assert (program.record.outcome, program.record.results) == ("failed", {"early": 1})


def test_a_wall_clock_that_jumps_gives_no_negative_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time_ns
    shift = [0]
    monkeypatch.setattr(time, "time_ns", lambda: real() + shift[0])
    with tenure.Run("x") as run:
        with run.phase("a"):
            shift[0] = -7_200 * 10**9
        with run.phase("b"):
            shift[0] = 86_400 * 10**9
    record = read_record(run.directory)
    assert record.outcome == "completed"
    assert [0 <= (phase["seconds"] or 0) < 5 for phase in record.phases] == [True, True]


def test_a_large_environment_and_many_arguments_are_no_obstacle(tmp_path: Path) -> None:
    script = tmp_path / "big.py"
    script.write_text(
        "import tenure\n@tenure.study\ndef main(run, words: list[str]): run.result(n=len(words))\nmain.main()\n"
    )
    env = {**os.environ, **{f"BIG{i}": "x" * 100_000 for i in range(10)}}
    words = ["w" * 1000] * 500
    subprocess.run(
        [sys.executable, str(script), "--words", *words], env=env, cwd=tmp_path, check=True, capture_output=True
    )
    record = only_run(tmp_path / "runs")
    assert record.results == {"n": 500}
    assert len(record.argv) == 503
