"""SIGTERM is all that a study hears.  On real processes: in loops, in C code, in threads, beside handlers and forks."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure.sdk.record import RecordWriter

from .conftest import Program

Start = Callable[..., Program]

SLEEPS = """
import time, tenure
@tenure.study
def main(run):
    print("ready")
    time.sleep(60)
main.main()
"""

LOOKS = """
import sys, time, tenure
@tenure.study
def main(run, leave: str = "check"):
    run.stopping
    print("ready")
    while True:
        time.sleep(0.005)
        if run.stopping:
            run.checkpoint(3, b"state")
            if leave == "return":
                return
            if leave == "raise":
                raise RuntimeError("while leaving")
            run.check()
main.main()
"""


@pytest.mark.parametrize(
    ("marks", "outcome", "reason"),
    [([], "interrupted", ""), (["preempt"], "interrupted", "preempted-by-9"), (["cancel"], "cancelled", "preempted-by-9"),
     (["preempt", "cancel"], "cancelled", "preempted-by-9")],
)  # fmt: skip
def test_a_stop_closes_the_run_by_the_mark(on_platform: Start, marks: list[str], outcome: str, reason: str) -> None:
    program = on_platform(SLEEPS).ready()
    for mark in marks:
        RecordWriter(program.run_dir, by="supervisor").stop_requested(mark, reason="preempted-by-9")
    program.signal(signal.SIGTERM)
    code, _, err = program.ended()
    assert code == 143
    assert "Traceback" not in err
    record = program.record
    assert record.outcome == outcome
    assert record.closed is not None
    assert (record.closed["by"], record.closed["signal"], record.closed["exit_code"]) == ("run", 15, 143)
    assert record.closed["reason"] == reason


@pytest.mark.parametrize(
    ("leave", "outcome", "code"),
    [("check", "interrupted", 143), ("return", "interrupted", 143), ("raise", "failed", 1)],
)
def test_a_study_that_looks_leaves_in_its_own_time(on_platform: Start, leave: str, outcome: str, code: int) -> None:
    program = on_platform(LOOKS, "--leave", leave).ready()
    program.signal(signal.SIGTERM)
    assert program.ended()[0] == code
    assert program.record.outcome == outcome
    assert [checkpoint["step"] for checkpoint in program.record.checkpoints] == [3]


def test_a_study_that_looks_and_hangs_is_interrupted_by_the_second_signal(on_platform: Start) -> None:
    program = on_platform("""
        import time, tenure
        @tenure.study
        def main(run):
            run.stopping
            print("ready")
            while not run.stopping:
                time.sleep(0.005)
            print("ready")
            time.sleep(60)
        main.main()
    """).ready()
    program.signal(signal.SIGTERM)
    program.ready().signal(signal.SIGTERM)
    assert program.ended()[0] == 143
    assert program.record.outcome == "interrupted"


def test_work_that_was_finished_is_complete_although_a_stop_came(on_platform: Start) -> None:
    program = on_platform("""
        import time, tenure
        @tenure.study
        def main(run):
            run.stopping
            print("ready")
            end = time.monotonic() + 0.3
            while time.monotonic() < end:
                pass
            run.result(done=True)
        main.main()
    """).ready()
    program.signal(signal.SIGTERM)
    assert program.ended()[0] == 0
    assert program.record.outcome == "completed"


def test_inside_c_code_it_takes_effect_when_that_returns(on_platform: Start) -> None:
    program = on_platform("""
        import tenure
        @tenure.study
        def main(run):
            print("ready")
            total = sum(range(30_000_000))  # one call into C that no signal cuts
            print("returned")
            while True:
                pass
        main.main()
    """).ready()
    program.signal(signal.SIGTERM)
    code, out, _ = program.ended()
    assert (code, out) == (143, "")
    assert program.record.outcome == "interrupted"


@pytest.mark.parametrize("waits", ["thread.join()", "queue.get()", "lock.acquire()", "event.wait()", "pool.result()"])
def test_while_threads_work_and_the_main_thread_waits(on_platform: Start, waits: str) -> None:
    program = on_platform(f"""
        import threading, time, queue as q, concurrent.futures, tenure
        @tenure.study
        def main(run):
            thread = threading.Thread(target=time.sleep, args=(60,), daemon=True); thread.start()
            queue, lock, event = q.Queue(), threading.Lock(), threading.Event()
            lock.acquire()
            pool = concurrent.futures.Future()
            print("ready")
            {waits}
        main.main()
    """).ready()
    program.signal(signal.SIGTERM)
    assert program.ended()[0] == 143
    assert program.record.outcome == "interrupted"


def test_a_handler_of_the_users_own_is_called_first_and_put_back(on_platform: Start) -> None:
    program = on_platform("""
        import signal, time, tenure
        def mine(signum, frame):
            print("mine")
        signal.signal(signal.SIGTERM, mine)
        @tenure.study
        def main(run):
            print("ready")
            time.sleep(60)
        try:
            main()
        except tenure.Interrupted:
            print(signal.getsignal(signal.SIGTERM) is mine)
    """).ready()
    program.signal(signal.SIGTERM)
    assert program.ended()[:2] == (0, "mine\nTrue\n")
    assert program.record.outcome == "interrupted"


def test_a_handler_that_leaves_by_itself_closes_by_the_mark(on_platform: Start) -> None:
    program = on_platform("""
        import signal, sys, time, tenure
        @tenure.study
        def main(run):
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
            print("ready")
            time.sleep(60)
        main.main()
    """).ready()
    RecordWriter(program.run_dir, by="supervisor").stop_requested("cancel", reason="user")
    program.signal(signal.SIGTERM)
    assert program.ended()[0] == 143
    assert program.record.outcome == "cancelled"


def test_except_exception_does_not_swallow_a_stop(on_platform: Start) -> None:
    program = on_platform("""
        import time, tenure
        @tenure.study
        def main(run):
            while True:
                try:
                    print("ready")
                    time.sleep(60)
                except Exception:
                    pass
        main.main()
    """).ready()
    program.signal(signal.SIGTERM)
    assert program.ended()[0] == 143


def test_a_checkpoint_being_written_is_finished_first(on_platform: Start) -> None:
    program = on_platform("""
        import time, tenure
        def write(file):
            file.write(b"a" * 1000)
            print("ready")
            end = time.monotonic() + 0.3
            while time.monotonic() < end:
                pass
            file.write(b"b" * 1000)
        @tenure.study
        def main(run):
            run.checkpoint(1, write)
            print("not reached")
        main.main()
    """).ready()
    program.signal(signal.SIGTERM)
    code, out, _ = program.ended()
    assert (code, out) == (143, "")
    record = program.record
    assert record.outcome == "interrupted"
    assert record.checkpoints[0]["bytes"] == 2000


def test_forked_children_neither_close_the_record_nor_hear_for_it(on_platform: Start) -> None:
    program = on_platform("""
        import os, signal, sys, time, tenure
        @tenure.study
        def main(run):
            stopped = os.fork()
            if not stopped:
                time.sleep(60)
                os._exit(9)
            leaves = os.fork()
            if not leaves:
                run.log(step=1, child=1)
                sys.exit(3)
            assert stopped and leaves
            falls = os.fork()
            if not falls:
                raise ValueError("in the child")
            os.kill(stopped, signal.SIGTERM)
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in (stopped, leaves, falls)]
            assert codes == [-15, 3, 1], codes
            run.result(ok=True)
        main.main()
    """)
    code, _, err = program.ended()
    assert code == 0, err
    record = program.record
    assert (record.outcome, record.results) == ("completed", {"ok": True})
    assert record.metrics["child"]["count"] == 1
    lines = (program.run_dir / "record.jsonl").read_text()
    assert lines.count('"kind":"closed"') == 1


def test_a_child_that_is_told_at_once_hears_it(on_platform: Start) -> None:
    program = on_platform("""
        import os, signal, time, tenure
        @tenure.study
        def main(run):
            for _ in range(200):
                child = os.fork()
                if not child:
                    time.sleep(30)
                    os._exit(9)
                assert child > 0
                os.kill(child, signal.SIGTERM)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -15
            run.result(ok=True)
        main.main()
    """)
    code, _, err = program.ended()
    assert code == 0, err
    assert program.record.results == {"ok": True}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader_leave_the_record_to_the_run(on_platform: Start, method: str) -> None:
    program = on_platform(f"""
        import multiprocessing, tenure
        def work(number):
            run = tenure.current_run()
            if run is not None:
                run.log(step=number, value=number)
            return number * number
        @tenure.study
        def main(run):
            with multiprocessing.get_context("{method}").Pool(4) as pool:
                run.result(total=sum(pool.map(work, range(50))))
        if __name__ == "__main__":
            main.main()
    """)
    code, _, err = program.ended()
    assert code == 0, err
    record = program.record
    assert (record.outcome, record.results, record.damaged) == ("completed", {"total": 40425}, 0)
    assert ("value" in record.metrics) == (method == "fork")


def test_ctrl_c_without_a_platform_cancels(on_platform: Start, tmp_path: Path) -> None:
    program = on_platform(SLEEPS, TENURE_RUN_DIR="", TENURE_HOME=str(tmp_path / "home")).ready()
    program.signal(signal.SIGINT)
    assert program.ended()[0] == 130
    (program.run_dir,) = [path for path in (tmp_path / "home" / "runs").iterdir() if path.is_dir()]
    assert program.record.outcome == "cancelled"


def test_ctrl_c_on_the_platform_goes_by_the_mark(on_platform: Start) -> None:
    program = on_platform(SLEEPS).ready()
    program.signal(signal.SIGINT)
    assert program.ended()[0] == 130
    assert program.record.outcome == "interrupted"


def test_signals_in_a_flood_close_the_run_once(on_platform: Start) -> None:
    program = on_platform(SLEEPS).ready()
    for _ in range(50):
        program.signal(signal.SIGTERM)
    code = program.ended()[0]
    assert code in (143, -15)  # the last ones may come when the handler is already put back
    assert program.record.outcome == "interrupted"
    assert (program.run_dir / "record.jsonl").read_text().count('"kind":"closed"') == 1


def test_a_sleep_of_the_run_ends_with_the_request(on_platform: Start) -> None:
    program = on_platform("""
        import tenure
        @tenure.study
        def main(run):
            print("ready")
            run.sleep(60)
            assert run.stopping
            run.check()
        main.main()
    """).ready()
    program.signal(signal.SIGTERM)
    assert program.ended()[0] == 143


def test_a_study_off_the_main_thread_still_has_a_record(on_platform: Start) -> None:
    program = on_platform("""
        import threading, tenure
        @tenure.study
        def main(run):
            run.sleep(0.01)
            run.result(ok=1)
        thread = threading.Thread(target=main)
        thread.start(); thread.join()
    """)
    assert program.ended()[0] == 0
    assert program.record.outcome == "completed"


MANY_FILES = """
import os, tenure
held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
@tenure.study
def main(run):
    print("ready")
    run.sleep(1e9)
    run.check()
main.main()
"""


def test_a_sleep_among_many_open_files_ends_with_a_stop(on_platform: Start) -> None:
    program = on_platform(MANY_FILES).ready()
    program.signal(signal.SIGTERM)
    code, _, _ = program.ended()
    assert (code, program.record.outcome) == (143, "interrupted")
