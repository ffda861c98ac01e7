"""What the diary says, counted: pure, one line after the other, each line once.

It keeps of every live job the little that a later line does not repeat: since when it waits, and whether it was asked to
leave.  Counters start from 0 with the daemon; a job that is older brings its own story along, which is replayed without
being counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tenure.domain.events import Event, EventKind
from tenure.domain.ids import Instant, JobId, RunId
from tenure.domain.lifecycle import Outcome
from tenure.domain.reasons import EvictionReason
from tenure.domain.tally import SLOW, Tally
from tenure.domain.window import WindowEnd
from tenure.ledger import JobRow

from .samples import Samples

__all__ = ["FOLLOWED", "Counts"]

_OF_JOBS = frozenset(
    {
        EventKind.JOB_RELEASED, EventKind.JOB_ADMITTED, EventKind.JOB_STARTED, EventKind.JOB_PREEMPTED,
        EventKind.JOB_CHECKED, EventKind.JOB_EVICTED, EventKind.JOB_REQUEUED, EventKind.JOB_LAUNCH_FAILED, EventKind.JOB_ENDED,
    }
)  # fmt: skip
FOLLOWED = _OF_JOBS | {
    EventKind.LIVELOCK,
    EventKind.RUN_REAPED,
    EventKind.RUN_HEALED,
    EventKind.CARDS_CHANGED,
    EventKind.WINDOW_ENDED,
}
_EVICTIONS = frozenset(EvictionReason)
_NO_CAUSE = ""  # Kueue tells causes apart only within reasons that one machine does not have


@dataclass(slots=True)
class _Job:
    namespace: str
    queue: str
    cluster_queue: str
    priority_class: str
    waits_since: Instant
    reserved_at: Instant | None = None
    admitted_at: Instant | None = None
    ready_at: Instant | None = None
    leaving: bool = False
    evicted_before: bool = False


class Counts:
    """`see` a line and it is counted; `knows` and `meet` let the caller bring the rows of jobs that are new here."""

    def __init__(self, has_checks: Callable[[str], bool] = lambda cluster_queue: False) -> None:
        """`has_checks` says whether admission checks may stand between quota and admission in a cluster queue."""
        self._has_checks = has_checks
        self._jobs: dict[JobId, _Job] = {}
        self._counters: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self._seconds: defaultdict[tuple[str, tuple[str, ...]], float] = defaultdict(float)
        self._waits: dict[tuple[str, tuple[str, ...]], Tally] = {}
        self._stalled: dict[RunId, JobId] = {}
        self.xids: dict[str, int] = {}

    # ------------------------------------------------------------------ jobs that are new here

    def knows(self, job: JobId) -> bool:
        return job in self._jobs

    def meet(self, row: JobRow, story: Iterable[Event] = ()) -> None:
        """A job, and what happened to it before the first line that is counted."""
        job = self._jobs[row.id] = _Job(
            namespace=row.namespace,
            queue=row.queue,
            cluster_queue=row.cluster_queue or "",
            priority_class=row.priority_class or "",
            waits_since=row.submitted_at,
        )
        for event in story:
            self._follow(job, event)

    def stalled(self, run: RunId, job: JobId) -> None:
        """A run of a live job that an earlier daemon gave up."""
        self._stalled[run] = job

    # ------------------------------------------------------------------ a line of the diary

    def see(self, event: Event) -> None:
        """Count it.  A line about a job whose row is gone is counted under no queue."""
        match event.kind:
            case EventKind.LIVELOCK:
                self._counters["tenure_livelock_events_total", ()] += 1
            case EventKind.RUN_REAPED:
                self._counters["tenure_runs_given_up_total", ("job" if event.job_id else "hand",)] += 1
                if event.job_id is not None and event.run_id is not None:
                    self._stalled[event.run_id] = event.job_id
            case EventKind.RUN_HEALED:
                self._counters["tenure_runs_healed_total", ()] += 1
                if event.run_id is not None:
                    self._stalled.pop(event.run_id, None)
            case EventKind.WINDOW_ENDED:
                self._counters["tenure_windows_total", (str(event.changes.get("reason", "")),)] += 1
                held = event.data.get("held_s")
                where = (str(event.data.get("card", "")),)
                seconds = held if isinstance(held, int | float) else 0.0
                self._seconds["tenure_window_held_seconds_total", where] += seconds
            case EventKind.CARDS_CHANGED:
                card, xid = event.data.get("card"), event.data.get("xid")
                if isinstance(card, str) and isinstance(xid, int):
                    self.xids[card] = xid
            case kind if kind in _OF_JOBS and event.job_id is not None:
                job = self._jobs.get(event.job_id) or _Job("", "", "", "", event.at)
                self._count(job, event)
                self._follow(job, event)
                if kind is EventKind.JOB_ENDED:
                    self._jobs.pop(event.job_id, None)
                if kind in (EventKind.JOB_ENDED, EventKind.JOB_REQUEUED, EventKind.JOB_LAUNCH_FAILED):
                    self._stalled = {run: of for run, of in self._stalled.items() if of != event.job_id}

    def _follow(self, job: _Job, event: Event) -> None:
        """What the line means for the lines after it."""
        match event.kind:
            case EventKind.JOB_ADMITTED:
                job.cluster_queue = str(event.changes.get("cluster_queue") or job.cluster_queue)
                job.reserved_at, job.leaving = event.at, False
                job.admitted_at = None if self._has_checks(job.cluster_queue) else event.at
            case EventKind.JOB_CHECKED if _passed(event):
                job.admitted_at = event.at
            case EventKind.JOB_PREEMPTED | EventKind.JOB_EVICTED:
                job.leaving = job.evicted_before = True
            case EventKind.JOB_STARTED:
                job.ready_at = event.at
                job.admitted_at = job.admitted_at or event.at
            case EventKind.JOB_RELEASED | EventKind.JOB_REQUEUED | EventKind.JOB_LAUNCH_FAILED:
                job.evicted_before = job.evicted_before or _lost(job, event)
                job.waits_since, job.leaving = event.at, False
                job.reserved_at = job.admitted_at = job.ready_at = None

    def _count(self, job: _Job, event: Event) -> None:
        queue = str(event.changes.get("cluster_queue") or job.cluster_queue)
        whose = (queue, job.priority_class)
        match event.kind:
            case EventKind.JOB_ADMITTED:
                self._counters["tenure_quota_reserved_workloads_total", whose] += 1
                self._wait("tenure_quota_reserved_wait_time_seconds", whose, (event.at - job.waits_since) / 1e6)
                if not self._has_checks(queue):
                    self._admitted(job, whose, event.at)
            case EventKind.JOB_CHECKED if _passed(event) and job.admitted_at is None:
                self._admitted(job, whose, event.at)
                self._checked(job, whose, event.at)
            case EventKind.JOB_STARTED:
                if job.admitted_at is None and job.reserved_at is not None:  # none of the queue's checks concerned it
                    self._admitted(job, whose, event.at)
                self._wait("tenure_ready_wait_time_seconds", whose, (event.at - job.waits_since) / 1e6)
                if job.admitted_at is not None:
                    launching = (event.at - job.admitted_at) / 1e6
                    self._wait("tenure_admitted_until_ready_wait_time_seconds", whose, launching)
            case EventKind.JOB_PREEMPTED | EventKind.JOB_EVICTED:
                self._evicted(job, queue, event)
                if event.kind is EventKind.JOB_PREEMPTED:
                    by = self._jobs.get(JobId(str(event.data.get("by", ""))))
                    who = (by.cluster_queue if by is not None else "", str(event.data.get("rule", "")))
                    self._counters["tenure_preempted_workloads_total", who] += 1
            case EventKind.JOB_REQUEUED if _lost(job, event):
                self._evicted(job, queue, event)
            case EventKind.JOB_ENDED:
                self._counters["tenure_finished_workloads_total", whose] += 1
                self._counters["tenure_job_outcomes_total", (queue, str(event.changes.get("outcome", "")))] += 1
        if "launch_failures" in event.changes:  # the last failed launch of a job is its end
            self._counters["tenure_launch_failures_total", (queue,)] += 1

    def _admitted(self, job: _Job, whose: tuple[str, str], at: Instant) -> None:
        self._counters["tenure_admitted_workloads_total", whose] += 1
        local = (job.queue, job.namespace, job.priority_class)
        self._counters["tenure_local_queue_admitted_workloads_total", local] += 1
        self._wait("tenure_admission_wait_time_seconds", whose, (at - job.waits_since) / 1e6)

    def _checked(self, job: _Job, whose: tuple[str, str], at: Instant) -> None:
        if job.reserved_at is not None:
            self._wait("tenure_admission_checks_wait_time_seconds", whose, (at - job.reserved_at) / 1e6)

    def _evicted(self, job: _Job, queue: str, event: Event) -> None:
        reason = str(event.changes.get("reason", ""))
        word = reason if reason in _EVICTIONS else "Interrupted"
        if not job.evicted_before:
            once = (queue, word, _NO_CAUSE, job.priority_class)
            self._counters["tenure_evicted_workloads_once_total", once] += 1
        if job.ready_at is not None:
            ran = (event.at - job.ready_at) / 1e6
            self._wait("tenure_pods_ready_to_evicted_time_seconds", (queue, word, _NO_CAUSE), ran)
        self._counters["tenure_evicted_workloads_total", (queue, word, _NO_CAUSE, job.priority_class)] += 1
        local = (job.queue, job.namespace, word, _NO_CAUSE, job.priority_class)
        self._counters["tenure_local_queue_evicted_workloads_total", local] += 1

    def _wait(self, name: str, whose: tuple[str, ...], seconds: float) -> None:
        tally = self._waits.get((name, whose))
        if tally is None:
            tally = self._waits[name, whose] = Tally(SLOW)
        tally.observe(seconds)

    # ------------------------------------------------------------------ for a scrape

    def collect(
        self,
        samples: Samples,
        *,
        queues: Iterable[str],
        classes: Iterable[str],
        cards: Iterable[str] = (),
        cohorts: Mapping[str, Iterable[str]] = {},
    ) -> None:
        """Every counter; those that can be named beforehand are there from the start, so that their first step shows.

        `cohorts` names the queues below each cohort.
        """
        counted = {**self._zeros(list(queues), list(classes)), **self._counters}
        for card in cards:
            self._seconds["tenure_window_held_seconds_total", (card,)] += 0.0
        for (name, labels), number in sorted({**counted, **self._seconds}.items()):
            samples.add(name, number, *labels)
        for (name, labels), tally in sorted(self._waits.items(), key=lambda item: item[0]):
            samples.spread(name, tally, *labels)
        samples.add("tenure_stalled_runs", len(self._stalled))
        for cohort, below in sorted(cohorts.items()):
            totals: Counter[str] = Counter()
            for queue in below:
                for name in classes:
                    totals[name] += counted.get(("tenure_admitted_workloads_total", (queue, name)), 0)
            for name, number in sorted(totals.items()):
                samples.add("tenure_cohort_subtree_admitted_workloads_total", number, cohort, name)

    def _zeros(self, queues: list[str], classes: list[str]) -> dict[tuple[str, tuple[str, ...]], int]:
        zeros: dict[tuple[str, tuple[str, ...]], int] = {
            ("tenure_livelock_events_total", ()): 0,
            ("tenure_runs_healed_total", ()): 0,
            ("tenure_runs_given_up_total", ("job",)): 0,
            ("tenure_runs_given_up_total", ("hand",)): 0,
            **{("tenure_windows_total", (str(why),)): 0 for why in WindowEnd},
        }
        for queue in queues:
            zeros["tenure_launch_failures_total", (queue,)] = 0
            for outcome in Outcome:
                zeros["tenure_job_outcomes_total", (queue, str(outcome))] = 0
            for name in classes:
                for what in ("quota_reserved", "admitted", "finished"):
                    zeros[f"tenure_{what}_workloads_total", (queue, name)] = 0
        return zeros


def _passed(event: Event) -> bool:
    """Every admission check was ready: the line that says so has no reason for waiting left."""
    return not event.changes.get("reason")


def _lost(job: _Job, event: Event) -> bool:
    """It came back without having been asked to leave: its supervisor was lost, or the machine was restarted."""
    back = event.kind is EventKind.JOB_REQUEUED and not job.leaving
    return back and event.data.get("outcome") == Outcome.INTERRUPTED
