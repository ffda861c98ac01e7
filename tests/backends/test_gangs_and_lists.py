"""Several processes: gangs that live and die together, elastic ones that shrink, work lists where each is on its own."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tenure.backends.local.environment import free_port
from tenure.backends.local.roster import WorkList
from tenure.backends.local.verdict import Exit
from tenure.domain.attempt import AttemptState, Stop, StopKind
from tenure.domain.job import GangPolicy
from tenure.domain.lifecycle import Outcome

from .local_rig import LocalRig, alive, eventually, lines


def test_the_port_of_a_gang_is_none_that_an_outgoing_connection_may_have_got_meanwhile() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = {free_port() for _ in range(50)}
    assert all(1024 <= port < first for port in ports)
    assert len(ports) > 25, "gangs that start together have ports of their own"
    with socket.create_server(("127.0.0.1", ports.pop())):
        pass


def test_the_partners_of_a_dead_member_hear_sigterm_and_may_save(rig: LocalRig, tmp_path: Path) -> None:
    program = (
        'if [ "$RANK" = 1 ]; then while [ ! -e up.0 ]; do sleep 0.02; done; kill -KILL $$; fi; '
        'trap "echo saved > saved.$RANK; exit 0" TERM; touch up.$RANK; while :; do sleep 0.05; done'
    )
    attempt = rig.job("bash", "-c", program, processes=2, gang=True)
    rig.backend.start(attempt)
    ended = rig.news.settled(attempt.run_id)
    assert (ended.failed_rank, ended.exit_code, ended.signal) == (1, 137, 9)
    assert "rank 1" in ended.message
    assert (tmp_path / "saved.0").exists()
    assert alive(attempt) == []


def test_a_shrunk_gang_loses_whole_trees(rig: LocalRig, tmp_path: Path) -> None:
    program = "setsid sleep 900 & touch up.$RANK; if [ $RANK = 0 ]; then read x < end; exit 0; fi; wait"
    os.mkfifo(tmp_path / "end")
    attempt = rig.job("bash", "-c", program, processes=3, gang=True, min_processes=1)
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    eventually(lambda: len(alive(attempt)) == 6 and all((tmp_path / f"up.{k}").exists() for k in range(3)))
    rig.backend.shrink(
        attempt.run_id, attempt.run_dir, 1, Stop(kind=StopKind.PREEMPT, reason="Preempted", by="test", grace_s=1.0)
    )
    rig.news.wait(attempt.run_id, lambda seen: seen.processes == 1)
    eventually(lambda: len(alive(attempt)) == 2)
    (tmp_path / "end").write_text("x\n")
    ended = rig.news.settled(attempt.run_id)
    assert (ended.outcome, ended.exit_code) == (Outcome.COMPLETED, 0)


def test_what_a_shrunk_gang_stubbornly_keeps_is_killed(rig: LocalRig, tmp_path: Path) -> None:
    program = "if [ $RANK = 1 ]; then trap '' TERM; fi; touch up.$RANK; while :; do sleep 0.05; done"
    attempt = rig.job("bash", "-c", program, processes=2, gang=True, min_processes=1)
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    eventually(lambda: all((tmp_path / f"up.{k}").exists() for k in range(2)))
    rig.backend.shrink(attempt.run_id, attempt.run_dir, 1, Stop(kind=StopKind.PREEMPT, reason="Preempted", grace_s=0.3))
    eventually(
        lambda: any(line["kind"] == "exited" and line["rank"] == 1 and line["signal"] == 9 for line in lines(attempt))
    )
    seen = rig.news.wait(attempt.run_id, lambda seen: seen.processes == 1)
    assert seen.state is AttemptState.RUNNING
    kinds = [line["kind"] for line in lines(attempt)]
    assert kinds.index("let-go") < kinds.index("exited") < kinds.index("live"), (
        "a place is kept until its rank has left"
    )


def test_a_rank_that_was_let_go_keeps_its_place_until_its_last_process_has_left(rig: LocalRig, tmp_path: Path) -> None:
    leaves = "trap '' TERM; touch up.1b; read x < go"
    program = f'if [ $RANK = 1 ]; then setsid bash -c "{leaves}" & fi; touch up.$RANK; exec sleep 900'
    os.mkfifo(tmp_path / "go")
    attempt = rig.job("bash", "-c", program, processes=2, gang=True, min_processes=1)
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    eventually(lambda: all((tmp_path / f"up.{k}").exists() for k in ("0", "1", "1b")))
    rig.backend.shrink(attempt.run_id, attempt.run_dir, 1, Stop(kind=StopKind.PREEMPT, reason="Preempted", grace_s=60))
    eventually(lambda: any(line["kind"] == "exited" and line["rank"] == 1 for line in lines(attempt)))
    assert rig.backend.observe([(attempt.run_id, attempt.run_dir)])[attempt.run_id].processes == 2
    (tmp_path / "go").write_text("x\n")
    rig.news.wait(attempt.run_id, lambda seen: seen.processes == 1)


def test_a_rank_that_ends_well_keeps_its_place_until_the_gang_gives_it_up(rig: LocalRig, tmp_path: Path) -> None:
    """Its place is none that another rank could give back: on several cards each has one of its own."""
    attempt = rig.job("bash", "-c", "[ $RANK = 0 ] || exec sleep 900", processes=3, gang=True, min_processes=1)
    rig.backend.start(attempt)
    eventually(lambda: any(line["kind"] == "exited" and line["rank"] == 0 for line in lines(attempt)))
    assert rig.backend.observe([(attempt.run_id, attempt.run_dir)])[attempt.run_id].processes == 3
    rig.backend.shrink(attempt.run_id, attempt.run_dir, 2, Stop(kind=StopKind.PREEMPT, reason="Preempted", grace_s=60))
    rig.news.wait(attempt.run_id, lambda seen: seen.processes == 2)
    assert sum(line["kind"] == "live" for line in lines(attempt)) == 1


def test_every_index_of_a_work_list_runs_and_a_failed_one_is_tried_again(rig: LocalRig, tmp_path: Path) -> None:
    program = (
        "echo run >> index.$JOB_COMPLETION_INDEX; "
        "if [ $JOB_COMPLETION_INDEX = 2 ] && [ $(wc -l < index.2) = 1 ]; then exit 1; fi"
    )
    attempt = rig.job(
        "bash", "-c", program, processes=2, policy=GangPolicy.EACH, completions=5, indexed=True, backoff_limit=1
    )
    rig.backend.start(attempt)
    ended = rig.news.settled(attempt.run_id)
    assert (ended.outcome, ended.exit_code) == (Outcome.COMPLETED, 0)
    assert [len((tmp_path / f"index.{k}").read_text().split()) for k in range(5)] == [1, 1, 2, 1, 1]
    assert (Path(attempt.run_dir) / "stdout.4.log").exists()


def test_a_work_list_ends_when_no_retry_is_left(rig: LocalRig) -> None:
    program = "if [ $JOB_COMPLETION_INDEX = 1 ]; then exit 7; fi; sleep 900"
    attempt = rig.job(
        "bash", "-c", program, processes=2, policy=GangPolicy.EACH, completions=4, indexed=True, backoff_limit=2
    )
    rig.backend.start(attempt)
    ended = rig.news.settled(attempt.run_id)
    assert (ended.outcome, ended.reason, ended.exit_code) == (Outcome.FAILED, "BackoffLimitExceeded", 7)
    assert ended.failed_rank == 1
    assert len([line for line in lines(attempt) if line["kind"] == "exited" and line["exit_code"] == 7]) == 3
    assert alive(attempt) == []


def test_a_stopped_work_list_starts_nothing_more(rig: LocalRig) -> None:
    attempt = rig.job("sleep", "900", processes=2, policy=GangPolicy.EACH, completions=6)
    rig.backend.start(attempt)
    rig.news.running(attempt.run_id)
    rig.backend.stop(attempt.run_id, attempt.run_dir, Stop(kind=StopKind.PREEMPT, reason="Preempted"))
    assert rig.news.settled(attempt.run_id).outcome is Outcome.INTERRUPTED
    assert len([line for line in lines(attempt) if line["kind"] == "member"]) == 2


@pytest.mark.parametrize("parallelism", [1, 2, 7])
def test_a_work_list_never_runs_more_than_its_parallelism(parallelism: int) -> None:
    work = WorkList(completions=5, parallelism=parallelism, backoff_limit=0)
    running, started = work.first(), 0
    while running:
        assert len(running) <= parallelism
        assert len({seat.slot for seat in running}) == len(running)
        started += 1
        running += work.exited(Exit(running.pop(0).rank, 0))
    assert started == 5
    assert work.complete
