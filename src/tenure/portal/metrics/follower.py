"""Reads the diary on, from this daemon's first line, so that every line is counted once and none is missed.

A thread keeps up beside the work, and a scrape reads what has come since, a page at most: its cost is bounded, and in
quiet times its numbers are of the moment.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence

from tenure.control.app import Platform
from tenure.domain.errors import Unavailable
from tenure.domain.events import Event, EventKind
from tenure.domain.ids import JobId, RunId, run_id
from tenure.domain.lifecycle import HOLDS_QUOTA

from .counts import FOLLOWED, Counts
from .samples import Samples

__all__ = ["Follower"]

log = logging.getLogger("tenure.portal")

PAGE = 250
BREATH_S = 0.25  # commits of this long are read together
STORY = 200  # the last lines of a job that is older than the daemon; what it waits for stands in the last few


class Follower:
    """The counts of one platform.  `start` and `stop` once; `collect` from any thread."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._counts = Counts(self._has_checks)
        self._cursor: int | None = None
        self._lock = threading.Lock()
        self._due = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        self._unsubscribe = self._platform.news.subscribe(lambda _: self._due.set())
        self._due.set()
        self._thread.start()

    def stop(self) -> None:
        self._unsubscribe()
        self._closed.set()
        self._due.set()
        self._thread.join(5)

    def collect(
        self,
        samples: Samples,
        *,
        queues: Iterable[str],
        classes: Iterable[str],
        cards: Iterable[str],
        cohorts: Mapping[str, Iterable[str]],
    ) -> None:
        """What the diary has said until now; a ledger that cannot be read leaves the counters where they were."""
        with self._lock:
            try:
                self._read_page()
            except Unavailable as error:
                log.debug("the counters stand still: %s", error)
            self._counts.collect(samples, queues=queues, classes=classes, cards=cards, cohorts=cohorts)
            lag = self._platform.news.cursor - (self._cursor or self._platform.began_after)
        samples.add("tenure_metrics_diary_lag_events", max(0, lag))

    def xids(self) -> dict[str, int]:
        """The last fault that the driver reported of each card."""
        with self._lock:
            return dict(self._counts.xids)

    # ------------------------------------------------------------------ inside

    def _run(self) -> None:
        while not self._closed.is_set():
            self._due.wait()
            self._due.clear()
            try:
                while not self._closed.is_set():
                    with self._lock:
                        if not self._read_page():
                            break
            except Unavailable:  # the platform is stopping, or its disk is full: the next news will tell
                pass
            except Exception:
                log.exception("the counters could not follow the diary; they go on with the next news")
            self._closed.wait(BREATH_S)

    def _read_page(self) -> bool:
        """Count what has come; True where there may be more."""
        ledger = self._platform.ledger
        if self._cursor is None:
            self._remember_stalled(before=self._platform.began_after)
            self._cursor = self._platform.began_after
        newest = self._platform.news.cursor  # before the read: what is committed meanwhile is for the next page
        if newest <= self._cursor:
            return False
        events = ledger.events(after=self._cursor, kinds=FOLLOWED, limit=PAGE)
        self._meet(events)
        for event in events:
            self._counts.see(event)
        full = len(events) == PAGE
        self._cursor = events[-1].id if full else max(newest, self._cursor, *(event.id for event in events))
        return full

    def _has_checks(self, cluster_queue: str) -> bool:
        queue = self._platform.policy.current.cluster_queues.get(cluster_queue)
        return queue is not None and bool(queue.admission_checks)

    def _meet(self, events: Sequence[Event]) -> None:
        """The rows of jobs that this page is the first to speak of, preemptors among them."""
        first: dict[JobId, int] = {}
        for event in events:
            named = [event.job_id, event.data.get("by") if event.kind is EventKind.JOB_PREEMPTED else None]
            for job in named:
                if isinstance(job, str) and job and not self._counts.knows(JobId(job)):
                    first.setdefault(JobId(job), event.id)
        for job, row in self._platform.ledger.jobs_by_id(list(first)).items():
            older = row.submitted_at < self._platform.started_at
            self._counts.meet(row, self._story(job, before=first[job]) if older else ())

    def _story(self, job: JobId, *, before: int) -> list[Event]:
        lines = self._platform.ledger.events(job_id=job, kinds=FOLLOWED, newest=True, limit=STORY)
        return [event for event in reversed(lines) if event.id < before]

    def _remember_stalled(self, *, before: int) -> None:
        """Runs that an earlier daemon gave up and whose jobs go on."""
        lines = self._platform.ledger.events(
            kinds=(EventKind.RUN_REAPED, EventKind.RUN_HEALED), newest=True, limit=PAGE
        )
        given_up: dict[RunId, JobId] = {}
        for event in reversed(lines):
            if event.id > before or event.run_id is None or event.job_id is None:
                continue
            if event.kind is EventKind.RUN_REAPED:
                given_up[event.run_id] = event.job_id
            else:
                given_up.pop(event.run_id, None)
        rows = self._platform.ledger.jobs_by_id(list(given_up.values()))
        for run, job in given_up.items():
            row = rows.get(job)
            if row is not None and row.state in HOLDS_QUOTA and run_id(row.id, row.attempts) == run:
                self._counts.stalled(run, job)
