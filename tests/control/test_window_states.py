"""Windows against every order of events: claims, releases, lapses, crashes, clocks that jump, jobs and models.

A real platform whose loop is stepped by hand, over attempts in memory and a clock that the test turns.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tenure.control import cards as card_finding
from tenure.control import policies, verbs, views, window_gate, window_jobs
from tenure.control.app import Platform
from tenure.control.caller import Caller
from tenure.control.clock import Clock
from tenure.control.live import Live
from tenure.control.model_jobs import model_of, spec_of
from tenure.control.namings import class_of
from tenure.control.verbs.submit import submit_specs
from tenure.control.window_rule import Rule
from tenure.domain.errors import Conflict, InvalidRequest
from tenure.domain.ids import Instant, JobId, WorkloadKey, run_id
from tenure.domain.lifecycle import HOLDS_QUOTA, JobState
from tenure.domain.window import WindowState
from tenure.ledger import Ledger, WindowRow, fold
from tenure.settings import Settings, load
from tenure.testing.fake_backend import FakeBackend, World

SECOND = 1_000_000
ANN, BOB = (Caller(user=name, role="user", via="token") for name in ("ann", "bob"))
ROOT = Caller(user="root", role="operator", via="internal")


class Turned(Clock):
    """Both clocks as the test says; a new one, as after a restart, knows steady time from the wall alone."""

    def __init__(self, wall: int) -> None:
        self.wall, self.passed = wall, wall

    def now(self) -> Instant:
        return Instant(self.wall)

    def steady(self) -> Instant:
        return Instant(self.passed)


class WindowStates(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.mkdtemp(prefix="tenure-windows-")
        home = Path(self._folder) / "home"
        self.world = World()
        self.clock = Turned(1_796_000_000 * SECOND)
        self.settings: Settings = load({"TENURE_HOME": str(home), "PATH": "/usr/bin:/bin", "HOME": str(home)})
        Platform.open(self.settings, cards_flag=["2x4x16Gi"], backend=FakeBackend(self.world)).ledger.close()
        spec = {"command": ["serve", "{port}"], "queueName": "large-model", "priorityClassName": "on-demand", "shares": 1, "gpuMemory": "1Gi"}  # fmt: skip
        document = {"apiVersion": "tenure.dev/v1", "kind": "Model", "metadata": {"name": "small"}, "spec": spec}
        (self.settings.policy_dir / "small.json").write_text(json.dumps(document))
        self.stopped = False
        self.unused: dict[str, int] = {}  # since when a job has not used its open window
        self._open()

    def _open(self) -> None:
        found = card_finding.find([], self.settings.cards_file)
        self.platform = Platform(
            settings=self.settings,
            ledger=Ledger.open(self.settings.ledger_url),
            backend=FakeBackend(self.world, clock=lambda: self.clock.wall),
            policy=policies.read(self.settings.policy_dir),
            found=found,
            clock=self.clock,
        )
        self.conductor = self.platform.conductor
        self.conductor.backend.open(self.conductor.heard)
        self.conductor.recover()
        self._settle()

    def _settle(self) -> None:
        """What a loop that is never late would have done by now."""
        news = self.conductor._inbox.take(0)
        for _ in range(50):
            self.conductor.step(news)
            heard, news = news, self.conductor._inbox.take(0)
            if not heard and not news:
                return
        raise AssertionError("the loop does not come to rest")

    def teardown(self) -> None:
        try:
            self.world.stubborn.clear()
            if self.stopped:
                self.the_queue_is_stopped_or_started()
            for _ in range(100):
                for card in list(self.platform.pool.out):
                    verbs.undrain(self.platform, card, caller=ROOT)
                for window in self.windows():
                    if window.job_id is None:
                        verbs.release_window(self.platform, window.id, caller=ROOT)
                for live in list(self.conductor.live.values()):
                    with suppress(Conflict):
                        verbs.cancel(self.platform, live.id, caller=ROOT)
                self._settle()
                self._leave(lambda run: True)
                if not self.conductor.live and not self.windows():
                    break
                self.pass_time(30)
            assert not self.conductor.live, "everything can end"
            assert not self.windows()
            self._check_diary()
        finally:
            self.platform.ledger.close()
            shutil.rmtree(self._folder)
            super().teardown()

    # ------------------------------------------------------------------ what happens

    @rule(
        who=st.sampled_from([ANN, BOB]), length=st.sampled_from([5, 40, 300]), begin=st.sampled_from([None, 20, 200]),
        wait=st.booleans(), including=st.booleans(), lease=st.sampled_from([None, 15]), card=st.sampled_from([None, "0", "1"]),
    )  # fmt: skip
    def claim(
        self, who: Caller, length: int, begin: int | None, wait: bool, including: bool, lease: int | None, card: str | None
    ) -> None:  # fmt: skip
        with suppress(Conflict, InvalidRequest):  # taken, or there is no card
            verbs.claim_window(
                self.platform, caller=who, length=f"{length}s", begin=f"now+{begin}seconds" if begin else None, wait=wait,
                including_resident=including, lease_s=lease, card=card,
            )  # fmt: skip
        self._settle()

    @precondition(lambda self: self.windows())
    @rule(pick=st.integers(0, 9))
    def release(self, pick: int) -> None:
        window = self.windows()[pick % len(self.windows())]
        with suppress(Conflict):  # a job that waits needs it
            verbs.release_window(self.platform, window.id, caller=ROOT)
        self._settle()

    @precondition(lambda self: self.windows())
    @rule(pick=st.integers(0, 9))
    def renew(self, pick: int) -> None:
        verbs.renew_window(self.platform, self.windows()[pick % len(self.windows())].id, caller=ROOT)
        self._settle()

    @rule(
        who=st.sampled_from([ANN, BOB]), priority=st.sampled_from(["on-demand", "batch", "training", "always-on"]),
        time=st.sampled_from([None, "10s", "100s"]), shares=st.integers(1, 4), stubborn=st.booleans(),
        window=st.sampled_from([{}, {}, {"window": True}, {"window": True, "including_resident": True}]),
        queue=st.sampled_from(["general", "large-model"]),
    )  # fmt: skip
    def submit(
        self, who: Caller, priority: str, time: str | None, shares: int, window: dict[str, bool], stubborn: bool, queue: str
    ) -> None:  # fmt: skip
        """A stubborn one will not hear of leaving until it ends by itself.  large-model may have one share at a time."""
        body: dict[str, Any] = {"argv": ["work"], "workdir": self._folder, "shares": shares, "gpu_memory": "1Gi", "priority": priority, "queue": queue, "backoff_limit": 3, **window}  # fmt: skip
        with suppress(InvalidRequest):
            job = verbs.submit(self.platform, body | ({"time": time} if time else {}), caller=who)["id"]
            if stubborn:
                self.world.stubborn.add(run_id(JobId(job), 1))
        self._settle()

    @rule()
    def wake_the_model(self) -> None:
        """As a request does that was asked for in the very moment before the gateway heard of a window."""
        if not any(model_of(live) for live in self.conductor.live.values()):
            spec = spec_of(self.platform.policy.models["small"], home=self.settings.home, port=20_001)
            submit_specs(self.platform, [spec], env_digest=None, retry_of=[None])
        self._settle()

    @rule(pick=st.integers(0, 9))
    def one_ends(self, pick: int) -> None:
        there = sorted(live.current_run for live in self.conductor.live.values() if live.launched)
        if there:
            self._leave(lambda run: run == there[pick % len(there)])

    @rule(pick=st.integers(0, 9))
    def one_fails(self, pick: int) -> None:
        """It is tried again, in a second or in four."""
        there = sorted(live.current_run for live in self.conductor.live.values() if live.launched)
        if there:
            self._leave(lambda run: run == there[pick % len(there)], exit_code=1)

    @rule(pick=st.integers(0, 9), hold=st.booleans())
    def one_is_held_or_let_go(self, pick: int, hold: bool) -> None:
        queued = [live.id for live in self.conductor.live.values() if live.state is JobState.QUEUED]
        if queued:
            (verbs.hold if hold else verbs.release)(self.platform, queued[pick % len(queued)], caller=ROOT)
            self._settle()

    @rule()
    def the_queue_is_stopped_or_started(self) -> None:
        self.stopped = not self.stopped
        path = self.settings.policy_dir / "20-cluster-queues.yaml"
        head = "  name: general\nspec:\n"
        text = path.read_text().replace("  stopPolicy: Hold\n", "")
        path.write_text(text.replace(head, head + "  stopPolicy: Hold\n") if self.stopped else text)
        verbs.reload_policy(self.platform, caller=ROOT)
        self._settle()

    @rule(card=st.sampled_from(["0", "1"]), move=st.booleans())
    def a_card_goes_out_of_the_pool_or_comes_back(self, card: str, move: bool) -> None:
        found = self.platform.pool.find(card)
        if found.cordoned:
            verbs.undrain(self.platform, found.id, caller=ROOT)
        else:
            verbs.drain(self.platform, found.id, caller=ROOT, move=move)
        self._settle()

    @rule(seconds=st.sampled_from([1, 5, 20, 60]))
    def pass_time(self, seconds: int) -> None:
        self.clock.wall += seconds * SECOND
        self.clock.passed += seconds * SECOND
        self._settle()

    @rule(seconds=st.sampled_from([-7200, 86_400]))
    def the_clock_jumps(self, seconds: int) -> None:
        self.clock.wall += seconds * SECOND
        self._settle()

    @rule(seconds=st.sampled_from([0, 30, -7200, 86_400]))
    def crash(self, seconds: int) -> None:
        """Nothing is said; attempts live on; the clock may jump before the next daemon looks at it."""
        self.platform.ledger.close()
        self.clock = Turned(self.clock.wall + seconds * SECOND)
        self.unused.clear()
        self._open()

    # ------------------------------------------------------------------ what always holds

    @invariant()
    def one_holder_and_nobody_inside(self) -> None:
        rule_, now = Rule(self.platform.policy.current), self.clock.steady()
        for card in {row.card for row in self.windows()}:
            active = [row for row in self.windows(card) if row.state is WindowState.ACTIVE]
            assert len(active) <= 1
            for window in active:
                assert self.conductor.windows.over_by(window) > now, "it is over, and still there"
                inside = [live for live in self._on(card) if not rule_.untouched(live, window)]
                assert not inside, (window, [(live.id, live.state) for live in inside])

    @invariant()
    def a_clear_card_is_given_to_whoever_is_next(self) -> None:
        rule_ = Rule(self.platform.policy.current)
        for card in {row.card for row in self.windows()}:
            line = self.windows(card)
            for window in line:
                begins = self.conductor.windows.begins(window)
                assert begins is None or begins > self.clock.steady(), "its time has come, and nobody noticed"
            if any(row.state is WindowState.ACTIVE for row in line):
                continue
            windows = self.conductor.windows
            ready = [row for row in line if row.state is WindowState.WAITING and windows.may_take(self.conductor, row)]
            if ready and not windows.is_heard(ready[0]):
                assert windows.holds(ready[0])
            elif ready:
                there = [live for live in self._on(card) if not rule_.untouched(live, ready[0])]
                assert there, "it waits for nothing"
                spared = any(rule_.spared(live) for live in there)
                leaving = all(live.state in (JobState.EVICTING, JobState.CANCELLING) for live in there)
                assert spared or leaving, "nobody asked them to leave"

    @invariant()
    def no_card_is_kept_for_a_job_that_does_not_start(self) -> None:
        windows, now = self.conductor.windows, self.clock.steady()
        for window in self.windows():
            live = self.conductor.live.get(window.job_id) if window.job_id is not None else None
            if live is None:
                continue
            if window.state is WindowState.ACTIVE and live.state is JobState.QUEUED:
                assert not live.held
                since = self.unused.setdefault(window.id, now)
                pend = self.platform.engine.status(WorkloadKey(live.id)) if live.in_engine else None
                if pend is not None and pend.reason == "WaitingForPreemptedWorkloads":
                    del self.unused[window.id]
                else:
                    assert now - since < window_jobs.PATIENCE_US, (window, live.message)
            else:
                self.unused.pop(window.id, None)
            if windows.holds(window) and window.state is WindowState.WAITING:
                assert windows.obstacle(window) is None
                assert not self.platform.pool.find(window.card).cordoned

    @invariant()
    def who_waits_for_a_window_is_told_of_one_that_is_there(self) -> None:
        for live in self.conductor.live.values():
            if live.state is not JobState.QUEUED:
                continue
            shut, avoid = window_gate.verdict(self.conductor, live)
            if live.reason == "WaitingForWindow" and not live.in_engine:
                assert shut is not None, (live.id, live.message)
                first, passed = window_gate.opens(self.conductor, live)
                assert first >= self.clock.steady()
                assert passed or live.spec.window or first > self.clock.steady()
            if live.in_engine:
                assert shut is None, (live.id, shut)
                assert live.avoid == avoid
                views.why(self.platform, live.id)

    @invariant()
    def a_model_that_is_shut_out_is_not_let_in(self) -> None:
        model = self.platform.policy.models["small"]
        priority, _ = class_of(self.platform.policy.current, model.priority_class)
        window = window_gate.shut_to(self.conductor, model, priority=priority)
        mine = [live for live in self.conductor.live.values() if model_of(live)]
        if window is not None:
            assert not [live for live in mine if live.in_engine and live.state is JobState.QUEUED]
        up = [live for live in mine if live.state in (JobState.ADMITTED, JobState.RUNNING) and live.admission]
        for live in up:
            for place in live.admission.placements if live.admission else ():
                held = [row for row in self.windows(place.card) if row.state is WindowState.ACTIVE]
                assert not held

    # ------------------------------------------------------------------ inside

    def windows(self, card: str | None = None) -> list[WindowRow]:
        rows = self.conductor.windows.rows
        return [row for found in sorted({row.card for row in rows}) for row in self.conductor.windows.of_card(found) if card in (None, found)]  # fmt: skip

    def _on(self, card: str) -> list[Live]:
        return [
            live
            for live in self.conductor.live.values()
            if live.state in HOLDS_QUOTA and live.admission and any(p.card == card for p in live.admission.placements)
        ]

    def _leave(self, which: Callable[[str], bool], *, exit_code: int = 0) -> None:
        for live in list(self.conductor.live.values()):
            run = live.current_run
            if live.state in HOLDS_QUOTA and run in self.world.attempts and which(run):
                self.world.stubborn.discard(run)
                self.conductor.backend.finish(run, exit_code)  # type: ignore[attr-defined]
        self._settle()

    def _check_diary(self) -> None:
        ledger = self.platform.ledger
        events = ledger.events(limit=1_000_000)
        for id, row in fold(events).windows.items():
            assert row == ledger.window(id)
        holder: dict[str, str] = {}
        for event in events:
            card = str(event.data.get("card"))
            if event.kind == "WindowOpened":
                assert card not in holder, event
                holder[card] = str(event.data["window"])
            elif event.kind == "WindowEnded" and holder.get(card) == event.data["window"]:
                del holder[card]


TestWindowStates = WindowStates.TestCase
TestWindowStates.settings = settings(
    max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
