"""The contract of `domain.attempt.Backend`: what control relies on, as tests that every backend must pass.

Subclass `BackendContract` in a test module and give it a fixture `rig`.  Nothing here sleeps: it waits for news, with a
deadline.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from tenure.domain.attempt import AttemptSpec, AttemptState, Backend, Observation, Stop, StopKind
from tenure.domain.ids import RunId
from tenure.domain.lifecycle import Outcome

__all__ = ["SETTLED", "BackendContract", "News", "Rig"]

SETTLED = frozenset({AttemptState.ENDED, AttemptState.LAUNCH_FAILED})


class News:
    """A listener that remembers, and that can be waited for."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._heard: list[Observation] = []

    def __call__(self, observation: Observation, /) -> None:
        with self._condition:
            self._heard.append(observation)
            self._condition.notify_all()

    def of(self, run: RunId) -> list[Observation]:
        """Everything heard of one attempt, in order."""
        with self._condition:
            return [seen for seen in self._heard if seen.run_id == run]

    def wait(self, run: RunId, wanted: Callable[[Observation], bool], *, within_s: float = 30.0) -> Observation:
        """The first news of `run` that is wanted.  Raises AssertionError, with all that was heard, after `within_s`."""
        deadline = time.monotonic() + within_s
        with self._condition:
            while True:
                for seen in self._heard:
                    if seen.run_id == run and wanted(seen):
                        return seen
                left = deadline - time.monotonic()
                if left <= 0:
                    heard = "\n".join(str(seen) for seen in self._heard if seen.run_id == run)
                    raise AssertionError(f"not within {within_s} s; heard of {run}:\n{heard or 'nothing'}")
                self._condition.wait(left)

    def running(self, run: RunId, *, within_s: float = 30.0) -> Observation:
        return self.wait(run, lambda seen: seen.state is AttemptState.RUNNING, within_s=within_s)

    def settled(self, run: RunId, *, within_s: float = 30.0) -> Observation:
        return self.wait(run, lambda seen: seen.state in SETTLED, within_s=within_s)


class Rig(Protocol):
    """A backend under test, with attempts whose end the test decides."""

    backend: Backend
    news: News

    def attempt(self, *, processes: int = 1, stubborn: bool = False) -> AttemptSpec:
        """A fresh attempt that runs until `end`; `stubborn` processes ignore a polite stop.  More than one are a gang."""

    def ready(self, attempt: AttemptSpec) -> None:
        """Return once the program has set itself up: a `stubborn` one hears a stop politely until then."""

    def unstartable(self) -> AttemptSpec:
        """An attempt whose program does not exist."""

    def end(self, attempt: AttemptSpec, exit_code: int, *, rank: int = 0) -> None:
        """Let one process leave by itself."""

    def restart(self) -> None:
        """The daemon is gone and comes back: close the backend, and open another one with fresh `news`."""


def _stop(kind: StopKind = StopKind.PREEMPT, *, grace_s: float = 10.0) -> Stop:
    return Stop(kind=kind, reason="Preempted", message="made room", by="contract", grace_s=grace_s)


class BackendContract:
    """Every promise of the protocol that control relies on."""

    def test_an_attempt_is_running_and_then_ended_with_its_exit_code(self, rig: Rig) -> None:
        attempt = rig.attempt()
        rig.backend.start(attempt)
        running = rig.news.running(attempt.run_id)
        assert running.started_at is not None
        assert running.processes == 1
        rig.end(attempt, 0)
        ended = rig.news.settled(attempt.run_id)
        assert (ended.state, ended.outcome, ended.exit_code) == (AttemptState.ENDED, Outcome.COMPLETED, 0)
        assert ended.started_at == running.started_at
        assert ended.ended_at is not None
        assert ended.ended_at >= running.started_at

    def test_an_exit_code_other_than_zero_is_a_failure(self, rig: Rig) -> None:
        attempt = rig.attempt()
        rig.backend.start(attempt)
        rig.news.running(attempt.run_id)
        rig.end(attempt, 7)
        ended = rig.news.settled(attempt.run_id)
        assert (ended.outcome, ended.exit_code, ended.signal) == (Outcome.FAILED, 7, None)
        assert ended.message

    def test_starting_twice_starts_once(self, rig: Rig) -> None:
        attempt = rig.attempt()
        rig.backend.start(attempt)
        rig.backend.start(attempt)
        rig.news.running(attempt.run_id)
        rig.backend.start(attempt)
        rig.end(attempt, 0)
        rig.news.settled(attempt.run_id)
        rig.backend.start(attempt)
        seen = rig.backend.observe([(attempt.run_id, attempt.run_dir)])[attempt.run_id]
        assert seen.state is AttemptState.ENDED
        told = [news for news in rig.news.of(attempt.run_id) if news.state is AttemptState.RUNNING]
        assert len({news.started_at for news in told}) == 1

    def test_what_cannot_be_launched_says_why_and_never_runs(self, rig: Rig) -> None:
        attempt = rig.unstartable()
        rig.backend.start(attempt)
        failed = rig.news.settled(attempt.run_id)
        assert failed.state is AttemptState.LAUNCH_FAILED
        assert failed.exit_code == 127
        assert failed.reason
        assert failed.message
        assert failed.started_at is None
        assert all(seen.state is not AttemptState.RUNNING for seen in rig.news.of(attempt.run_id))
        seen = rig.backend.observe([(attempt.run_id, attempt.run_dir)])[attempt.run_id]
        assert (seen.state, seen.reason) == (failed.state, failed.reason)

    def test_a_preemption_interrupts(self, rig: Rig) -> None:
        attempt = rig.attempt()
        rig.backend.start(attempt)
        rig.news.running(attempt.run_id)
        rig.backend.stop(attempt.run_id, attempt.run_dir, _stop())
        ended = rig.news.settled(attempt.run_id)
        assert (ended.state, ended.outcome) == (AttemptState.ENDED, Outcome.INTERRUPTED)
        assert (ended.reason, ended.message) == ("Preempted", "made room")

    def test_a_cancel_cancels(self, rig: Rig) -> None:
        attempt = rig.attempt()
        rig.backend.start(attempt)
        rig.news.running(attempt.run_id)
        rig.backend.stop(attempt.run_id, attempt.run_dir, _stop(StopKind.CANCEL))
        assert rig.news.settled(attempt.run_id).outcome is Outcome.CANCELLED

    def test_a_cancel_after_a_preemption_wins(self, rig: Rig) -> None:
        attempt = rig.attempt(stubborn=True)
        rig.backend.start(attempt)
        rig.news.running(attempt.run_id)
        rig.ready(attempt)
        rig.backend.stop(attempt.run_id, attempt.run_dir, _stop(grace_s=60))
        rig.news.wait(attempt.run_id, lambda seen: seen.state is AttemptState.STOPPING)
        rig.backend.stop(attempt.run_id, attempt.run_dir, _stop(StopKind.CANCEL, grace_s=0))
        assert rig.news.settled(attempt.run_id).outcome is Outcome.CANCELLED

    def test_a_preemption_after_a_cancel_changes_nothing(self, rig: Rig) -> None:
        attempt = rig.attempt(stubborn=True)
        rig.backend.start(attempt)
        rig.news.running(attempt.run_id)
        rig.ready(attempt)
        rig.backend.stop(attempt.run_id, attempt.run_dir, _stop(StopKind.CANCEL, grace_s=60))
        rig.backend.stop(attempt.run_id, attempt.run_dir, _stop(grace_s=0))
        assert rig.news.settled(attempt.run_id).outcome is Outcome.CANCELLED

    def test_who_ignores_the_polite_stop_is_killed_after_the_grace(self, rig: Rig) -> None:
        attempt = rig.attempt(stubborn=True)
        rig.backend.start(attempt)
        rig.news.running(attempt.run_id)
        rig.ready(attempt)
        rig.backend.stop(attempt.run_id, attempt.run_dir, _stop(grace_s=0.3))
        ended = rig.news.settled(attempt.run_id)
        assert (ended.outcome, ended.exit_code, ended.signal) == (Outcome.INTERRUPTED, 137, 9)

    def test_a_cancel_while_starting_has_one_end(self, rig: Rig) -> None:
        attempt = rig.attempt()
        rig.backend.start(attempt)
        rig.backend.stop(attempt.run_id, attempt.run_dir, _stop(StopKind.CANCEL))
        ended = rig.news.settled(attempt.run_id)
        assert (ended.state, ended.outcome) == (AttemptState.ENDED, Outcome.CANCELLED)

    def test_stopping_twice_stops_once(self, rig: Rig) -> None:
        attempt = rig.attempt()
        rig.backend.start(attempt)
        rig.news.running(attempt.run_id)
        for _ in range(2):
            rig.backend.stop(attempt.run_id, attempt.run_dir, _stop(StopKind.CANCEL))
        rig.news.settled(attempt.run_id)
        ends = [(seen.outcome, seen.ended_at) for seen in rig.news.of(attempt.run_id) if seen.state in SETTLED]
        assert ends
        assert set(ends) == {(Outcome.CANCELLED, ends[0][1])}, "an end may be told again, and stays what it was"

    def test_a_stop_after_the_end_changes_nothing(self, rig: Rig) -> None:
        attempt = rig.attempt()
        rig.backend.start(attempt)
        rig.news.running(attempt.run_id)
        rig.end(attempt, 0)
        ended = rig.news.settled(attempt.run_id)
        rig.backend.stop(attempt.run_id, attempt.run_dir, _stop(StopKind.CANCEL))
        seen = rig.backend.observe([(attempt.run_id, attempt.run_dir)])[attempt.run_id]
        assert (seen.outcome, seen.exit_code, seen.ended_at) == (Outcome.COMPLETED, 0, ended.ended_at)

    def test_a_stop_of_what_never_started_is_no_error(self, rig: Rig) -> None:
        attempt = rig.attempt()
        rig.backend.stop(attempt.run_id, attempt.run_dir, _stop(StopKind.CANCEL))
        seen = rig.backend.observe([(attempt.run_id, attempt.run_dir)])[attempt.run_id]
        assert seen.state is AttemptState.ABSENT

    def test_many_are_observed_at_once(self, rig: Rig) -> None:
        runs, done, never = rig.attempt(), rig.attempt(), rig.attempt()
        rig.backend.start(runs)
        rig.backend.start(done)
        rig.news.running(runs.run_id)
        rig.news.running(done.run_id)
        rig.end(done, 4)
        rig.news.settled(done.run_id)
        seen = rig.backend.observe([(one.run_id, one.run_dir) for one in (runs, done, never)])
        assert [seen[one.run_id].state for one in (runs, done, never)] == [
            AttemptState.RUNNING,
            AttemptState.ENDED,
            AttemptState.ABSENT,
        ]
        assert seen[done.run_id].exit_code == 4

    def test_attempts_go_on_without_the_daemon_and_are_adopted(self, rig: Rig) -> None:
        stays, leaves = rig.attempt(), rig.attempt()
        for attempt in (stays, leaves):
            rig.backend.start(attempt)
        started = [rig.news.running(attempt.run_id).started_at for attempt in (stays, leaves)]
        rig.restart()
        seen = rig.backend.observe([(one.run_id, one.run_dir) for one in (stays, leaves)])
        assert [seen[one.run_id].state for one in (stays, leaves)] == [AttemptState.RUNNING] * 2
        assert [seen[one.run_id].started_at for one in (stays, leaves)] == started
        rig.backend.start(stays)  # as a daemon would that does not know whether its start was heard
        rig.news.running(stays.run_id)
        rig.end(leaves, 5)
        assert rig.news.settled(leaves.run_id).exit_code == 5
        rig.backend.stop(stays.run_id, stays.run_dir, _stop())
        assert rig.news.settled(stays.run_id).outcome is Outcome.INTERRUPTED

    def test_a_gang_ends_with_its_first_dead_and_names_it(self, rig: Rig) -> None:
        attempt = rig.attempt(processes=3)
        rig.backend.start(attempt)
        assert rig.news.running(attempt.run_id).processes == 3
        rig.end(attempt, 9, rank=2)
        ended = rig.news.settled(attempt.run_id)
        assert (ended.outcome, ended.exit_code, ended.failed_rank) == (Outcome.FAILED, 9, 2)
        assert ended.reason == "GangMemberFailed"

    def test_a_gang_completes_when_all_have(self, rig: Rig) -> None:
        attempt = rig.attempt(processes=2)
        rig.backend.start(attempt)
        rig.news.running(attempt.run_id)
        rig.end(attempt, 0, rank=1)
        rig.end(attempt, 0, rank=0)
        ended = rig.news.settled(attempt.run_id)
        assert (ended.outcome, ended.exit_code, ended.failed_rank) == (Outcome.COMPLETED, 0, None)

    def test_a_gang_shrinks_and_goes_on(self, rig: Rig) -> None:
        attempt = rig.attempt(processes=3)
        rig.backend.start(attempt)
        rig.news.running(attempt.run_id)
        rig.backend.shrink(attempt.run_id, attempt.run_dir, 1, _stop())
        rig.news.wait(attempt.run_id, lambda seen: seen.processes == 1)
        seen = rig.backend.observe([(attempt.run_id, attempt.run_dir)])[attempt.run_id]
        assert (seen.state, seen.processes) == (AttemptState.RUNNING, 1)
        rig.end(attempt, 0)
        assert rig.news.settled(attempt.run_id).outcome is Outcome.COMPLETED

    def test_it_is_well_while_open(self, rig: Rig) -> None:
        assert rig.backend.probe().ok
