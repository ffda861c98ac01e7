"""The gateway's decisions, played against every order of events: no request lost, no busy model evicted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tenure.domain.model import ModelState
from tenure.gateway.policy import Desk
from tenure.gateway.words import Action, Forward, Limits, Refuse, Seen, Sleep, Ticket, Wake

S = ModelState
LIMITS = Limits(held=5, hold_s=30, patience_s=4, quiet_s=1, swaps_per_minute=3)
ASLEEP = Seen(name="a", state=S.ASLEEP)
READY = Seen(name="a", state=S.READY, port=1, run="1.1")


def asked(desk: Desk, id: int, model: str = "a", now: float = 0, **more: bool) -> list[Action]:
    return desk.arrive(Ticket(id=id, model=model, at=now, what="a test", who="me", **more), now)


def two(first: Seen, second: Seen, limits: Limits = LIMITS) -> Desk:
    desk = Desk(limits)
    desk.see([replace(first, name="a"), replace(second, name="b")], 0)
    return desk


WAITS = Seen(name="b", state=S.QUEUED, blocked_by=("a",), reason="WaitingForQuota", message="one fits")


def test_twenty_at_once_wake_once_and_all_are_forwarded() -> None:
    desk = Desk()
    desk.see([ASLEEP], 0)
    actions = [action for id in range(20) for action in asked(desk, id)]
    assert actions == [Wake("a", "a test", "me", 0)]
    assert desk.see([replace(ASLEEP, state=S.STARTING)], 1) == []
    assert desk.see([READY], 2) == [Forward(id, 1, "1.1") for id in range(20)]


def test_who_does_not_wait_is_told_and_wakes_it_all_the_same() -> None:
    desk = Desk()
    desk.see([ASLEEP], 0)
    refusal, wake = asked(desk, 1, patient=False)
    assert isinstance(refusal, Refuse)
    assert (refusal.status, refusal.retry_after_s) == (503, 5)
    assert wake == Wake("a", "a test", "me", 1)


def test_what_is_no_inference_never_wakes() -> None:
    desk = Desk()
    desk.see([ASLEEP], 0)
    (refusal,) = asked(desk, 1, wakes=False)
    assert isinstance(refusal, Refuse)
    assert refusal.code == "model_asleep"
    desk.see([READY], 1)
    assert asked(desk, 2, wakes=False) == [Forward(2, 1, "1.1")]
    assert desk.flying("a") == 1
    assert desk.flying("a", inference=True) == 0


def test_a_model_that_went_while_its_request_was_read_is_not_found() -> None:
    desk = Desk()
    desk.see([ASLEEP], 0)
    desk.see([], 1)
    (refusal,) = asked(desk, 1, now=1)
    assert isinstance(refusal, Refuse)
    assert (refusal.status, refusal.code) == (404, "model_not_found")
    assert desk.finished(1, 2) == []


def test_no_more_are_held_than_the_bound() -> None:
    desk = two(ASLEEP, ASLEEP)
    for id in range(5):
        asked(desk, id)
    (refusal,) = asked(desk, 5, "b")
    assert isinstance(refusal, Refuse)
    assert (refusal.status, refusal.code) == (429, "too_many_held")


def test_what_cannot_be_placed_is_refused_with_the_why() -> None:
    desk = Desk()
    desk.see([replace(ASLEEP, state=S.QUEUED, placeable=False, reason="ExceedsMaxQuota", message="9 > 8")], 0)
    (refusal,) = asked(desk, 1)
    assert isinstance(refusal, Refuse)
    assert refusal.status == 503
    assert "ExceedsMaxQuota: 9 > 8" in refusal.message
    assert refusal.retry_after_s


def test_who_waits_for_a_turn_is_refused_at_the_bound_and_who_waits_for_loading_is_not() -> None:
    desk = two(replace(READY, resident=True), WAITS)
    asked(desk, 1, "b")
    assert desk.tick(29) == []
    (refusal,) = desk.tick(31)
    assert isinstance(refusal, Refuse)
    assert refusal.code == "model_not_placed"
    assert "WaitingForQuota: one fits" in refusal.message
    asked(desk, 2, "b", 40)
    desk.see([READY, replace(WAITS, state=S.STARTING)], 41)
    assert desk.tick(400) == []


def test_a_failure_is_told_and_the_next_request_tries_after_the_backoff() -> None:
    desk = Desk()
    desk.see([replace(ASLEEP, state=S.STARTING)], 0)
    asked(desk, 1)
    failed = replace(ASLEEP, state=S.FAILED, reason="StartTimeout", retry_after_s=4)
    (refusal,) = desk.see([failed], 1)
    assert isinstance(refusal, Refuse)
    assert (refusal.code, refusal.retry_after_s) == ("model_failed", 4)
    assert asked(desk, 3, now=6) == [Wake("a", "a test", "me", 3)]


def failed(retry_after_s: float, failures: int = 1) -> Seen:
    why = {"reason": "ServerEnded", "message": "it ended"}
    return replace(ASLEEP, state=S.FAILED, retry_after_s=retry_after_s, failures=failures, **why)


def test_a_short_backoff_is_waited_through_and_wakes_once() -> None:
    desk = Desk()
    desk.see([READY], 0)
    desk.see([failed(1)], 10)
    assert asked(desk, 1, now=10.1) == asked(desk, 2, now=10.9) == []
    desk.see([failed(0.3)], 10.7)  # said again because of another model: how long it is from then on
    desk.see([failed(0.9)], 10.7)  # and however late the one or the other came, it is the same failure
    desk.see([failed(0.3)], 10.7)
    assert desk.tick(10.95) == []
    assert desk.tick(11.01) == [Wake("a", "a test", "me", 1)]
    assert desk.tick(11.1) == []
    assert desk.see([replace(READY, run="2.1", port=2)], 12) == [Forward(1, 2, "2.1"), Forward(2, 2, "2.1")]


def test_who_does_not_wait_is_told_of_a_short_backoff_at_once() -> None:
    desk = Desk()
    desk.see([failed(1)], 0)
    (refusal,) = asked(desk, 1, now=0.25, patient=False)
    assert isinstance(refusal, Refuse)
    assert (refusal.status, refusal.code, refusal.retry_after_s) == (503, "model_failed", 0.75)
    assert "ServerEnded: it ended" in refusal.message


def test_a_backoff_is_waited_through_only_where_what_is_left_of_it_is_short() -> None:
    desk = Desk()
    desk.see([failed(64)], 0)
    for now, left in ((0, 64), (30, 34), (58.9, 5.1)):
        (refusal,) = asked(desk, int(now * 10), now=now)
        assert isinstance(refusal, Refuse)
        assert (refusal.code, round(refusal.retry_after_s or 0, 3)) == ("model_failed", left)
    desk.see([failed(4.5)], 59.5)
    assert asked(desk, 1000, now=60) == []
    assert desk.tick(63.9) == []
    assert desk.tick(64) == [Wake("a", "a test", "me", 1000)]


def test_of_a_backoff_no_more_wait_than_may_be_held() -> None:
    desk = Desk(Limits(held=2))
    desk.see([failed(2)], 0)
    assert asked(desk, 1) == asked(desk, 2) == []
    (refusal,) = asked(desk, 3)
    assert isinstance(refusal, Refuse)
    assert (refusal.status, refusal.code) == (429, "too_many_held")
    short = Desk(Limits(hold_s=1))
    short.see([failed(2)], 0)
    (refusal,) = asked(short, 1)
    assert isinstance(refusal, Refuse)
    assert (refusal.code, refusal.retry_after_s) == ("model_failed", 2)


def test_who_waited_through_a_backoff_is_told_where_the_next_one_fails_too() -> None:
    for began in (True, False):  # its process may not even have been started: no other state is seen then
        desk = Desk()
        desk.see([READY], 0)
        desk.see([failed(1)], 1)
        assert asked(desk, 1, now=1) == []
        assert desk.tick(2) == [Wake("a", "a test", "me", 1)]
        if began:
            desk.see([replace(ASLEEP, state=S.STARTING)], 2.1)
        (refusal,) = desk.see([failed(2, 2)], 2.2)
        assert isinstance(refusal, Refuse)
        assert (refusal.code, refusal.retry_after_s) == ("model_failed", 2)
        assert desk.held == 0


def test_a_window_that_begins_within_a_backoff_is_no_failure() -> None:
    desk = Desk()
    desk.see([failed(1)], 0)
    assert asked(desk, 1) == []
    assert desk.see([replace(failed(20), window="kim has the card")], 0.5) == []
    assert desk.see([failed(0)], 3) == [Wake("a", "a test", "me", 1)]


def test_one_retry_where_no_byte_came() -> None:
    desk = Desk()
    desk.see([READY], 0)
    asked(desk, 1)
    assert desk.again(1, 1, why="reset") == []
    assert asked(desk, 2, now=1) == [Forward(2, 1, "1.1")], "that says nothing of others"
    assert desk.tick(1.1) == [], "one that is being ended would be asked twice before it has gone"
    assert desk.tick(1.25) == [Forward(1, 1, "1.1")]
    (refusal,) = desk.again(1, 2, why="reset")
    assert isinstance(refusal, Refuse)
    assert refusal.status == 502


def test_who_was_sent_to_a_server_that_died_waits_for_the_next_one_once() -> None:
    failed = replace(ASLEEP, state=S.FAILED, retry_after_s=1)
    first, last = Desk(), Desk()  # the server's end may be heard before or after the connection's
    for desk in (first, last):
        desk.see([READY], 0)
        asked(desk, 1)
    assert first.see([failed], 0.5) == []
    assert first.again(1, 0.6, why="reset") == []
    last.see([replace(READY, state=S.DRAINING)], 0.5)
    assert last.again(1, 0.6, why="reset") == []
    assert last.see([failed], 0.6) == []
    for desk in (first, last):
        assert desk.tick(1.7) == [Wake("a", "a test", "me", 1)]
        desk.see([replace(ASLEEP, state=S.STARTING)], 2)
        (refusal,) = desk.see([failed], 3)
        assert isinstance(refusal, Refuse)


@pytest.mark.parametrize("before", [0, 1], ids=["it came after the end", "it was there at the end"])
def test_where_nobody_listens_a_request_waits_until_the_platform_knows(before: int) -> None:
    desk = Desk()
    desk.see([READY], 0)
    asked(desk, 1)
    if before:  # its connection was closed without a byte, and the next one is refused
        assert desk.again(1, 0.1, why="closed") == []
        assert desk.tick(0.35) == [Forward(1, 1, "1.1")]
    assert desk.again(1, 0.4, why="refused", absent=True) == []
    assert asked(desk, 2, now=0.5) == [], "nobody else is sent there meanwhile"
    assert desk.see([replace(READY, state=S.DRAINING)], 1.5) == []
    assert desk.see([replace(ASLEEP, state=S.FAILED, retry_after_s=1)], 2) == []
    assert desk.tick(3.1) == [Wake("a", "a test", "me", 1)]
    assert desk.see([replace(READY, run="2.1", port=2)], 4) == [Forward(1, 2, "2.1"), Forward(2, 2, "2.1")]


def test_who_waited_for_it_to_load_is_told_also_where_it_has_to_be_ended_first() -> None:
    desk = Desk()
    desk.see([replace(ASLEEP, state=S.STARTING)], 0)
    asked(desk, 1)
    desk.see([replace(ASLEEP, state=S.DRAINING)], 1)
    (refusal,) = desk.see([replace(ASLEEP, state=S.FAILED, retry_after_s=1)], 2)
    assert isinstance(refusal, Refuse)


def test_who_came_for_a_server_that_fails_again_and_again_is_told_and_not_kept() -> None:
    desk = Desk(LIMITS)
    desk.see([READY], 0)
    asked(desk, 1)
    assert desk.again(1, 0.2, why="refused", absent=True) == []
    (refusal,) = desk.see([replace(ASLEEP, state=S.FAILED, retry_after_s=64)], 2)
    assert isinstance(refusal, Refuse)
    assert (refusal.code, refusal.retry_after_s) == ("model_failed", 64)


def test_a_server_that_nobody_misses_is_asked_once_more_and_then_given_up() -> None:
    desk = Desk()
    desk.see([READY], 0)
    asked(desk, 1)
    assert desk.again(1, 0, why="refused", absent=True) == []
    assert desk.tick(4) == []
    assert desk.tick(5.1) == [Forward(1, 1, "1.1")]
    assert desk.again(1, 5.2, why="refused", absent=True) == []
    assert desk.tick(10.3) == [Forward(1, 1, "1.1")]
    (refusal,) = desk.again(1, 10.4, why="refused", absent=True)
    assert isinstance(refusal, Refuse)
    assert (refusal.status, refusal.code) == (502, "upstream_failed")


def test_an_idle_model_makes_room_and_a_busy_one_is_not_touched() -> None:
    desk = two(READY, ASLEEP)
    asked(desk, 1, "a", 0)
    asked(desk, 2, "b", 1)
    desk.see([READY, WAITS], 1.1)
    assert desk.tick(25) == []  # a long stream is never cut for a swap
    assert desk.finished(1, 26) == [Sleep("a", "makes room for b, for which 1 wait")]


def test_whoever_is_up_takes_nothing_new_once_another_has_waited_long_enough() -> None:
    desk = two(READY, WAITS)
    asked(desk, 1, "a", 0)
    asked(desk, 2, "b", 0)
    assert asked(desk, 3, "a", 1) == [Forward(3, 1, "1.1")]
    assert asked(desk, 4, "a", 5) == []  # held: b has waited for 5 s
    desk.finished(1, 6)
    assert desk.finished(3, 7) == [Sleep("a", "makes room for b, for which 1 wait")]
    assert desk.waiting("a") == 1


class Alternating(RuleBasedStateMachine):
    """Two models of which one fits, clients that come and go, and a platform that does what it is asked, in time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.desk = Desk(LIMITS)
        self.models = {"a": ASLEEP, "b": replace(ASLEEP, name="b")}
        self.open: dict[int, str] = {}  # arrived and not answered: held or in flight
        self.flying: dict[int, str] = {}
        self.answered: set[int] = set()
        self.next = 0
        self.swaps: list[float] = []
        self.woken_at = dict.fromkeys(self.models, 0.0)
        self.desk.see(self.told(), 0)

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Forward(ticket=id):
                    assert self.models[self.open[id]].state is S.READY
                    assert id not in self.flying, "sent twice at once"
                    self.flying[id] = self.open[id]
                case Refuse(ticket=id):
                    assert id in self.open, "refused a stranger"
                    assert id not in self.flying, "refused in flight"
                    del self.open[id]
                    self.answered.add(id)
                case Wake(model=name):
                    assert self.models[name].state in (S.ASLEEP, S.FAILED)
                    assert self.now > self.woken_at[name] - 1e-6, "woken within its backoff"
                    self.change(name, S.QUEUED)
                    self.do(self.desk.see(self.told(), self.now))
                case Sleep(model=name):
                    assert name not in self.flying.values(), "a busy model is put to sleep"
                    self.swaps.append(self.now)
                    self.change(name, S.DRAINING)
                    self.do(self.desk.see(self.told(), self.now))

    def change(self, name: str, state: ModelState, *, backoff_s: float = 0) -> None:
        other = "b" if name == "a" else "a"
        blocked = (other,) if state is S.QUEUED else ()
        self.models[name] = Seen(name=name, state=state, port=1, run="1", blocked_by=blocked)
        self.woken_at[name] = self.now + (backoff_s if state is S.FAILED else 0)

    def told(self) -> list[Seen]:
        """The platform's table as it says it now: of a backoff, what is left."""
        return [replace(m, retry_after_s=max(0, self.woken_at[m.name] - self.now)) for m in self.models.values()]

    @rule(name=st.sampled_from("ab"), patient=st.booleans(), wakes=st.booleans())
    def arrives(self, name: str, patient: bool, wakes: bool) -> None:
        self.next += 1
        self.open[self.next] = name
        self.do(self.desk.arrive(Ticket(id=self.next, model=name, at=self.now, patient=patient, wakes=wakes), self.now))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def ends(self, data: st.DataObject) -> None:
        """Answered, or its client has left, in whatever state it was."""
        id = data.draw(st.sampled_from(sorted(self.open)))
        del self.open[id]
        self.flying.pop(id, None)
        self.answered.add(id)
        self.do(self.desk.finished(id, self.now))

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def loses_its_server(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.flying)))
        del self.flying[id]
        self.do(self.desk.again(id, self.now, why="reset", absent=data.draw(st.booleans())))

    @rule(data=st.data(), name=st.sampled_from("ab"))
    def the_platform_moves(self, data: st.DataObject, name: str) -> None:
        other = self.models["b" if name == "a" else "a"].state
        fits = other in (S.ASLEEP, S.FAILED, S.QUEUED)
        following = {
            S.QUEUED: [S.STARTING] if fits else [],
            S.STARTING: [S.READY, S.FAILED],
            S.READY: [S.DRAINING, S.FAILED],
            S.DRAINING: [S.ASLEEP, S.QUEUED],
            S.ASLEEP: [],
            S.FAILED: [],
        }[self.models[name].state]
        if following:
            backoff_s = data.draw(st.sampled_from([0.0, 1.0, 4.0, 32.0, 300.0]))
            self.change(name, data.draw(st.sampled_from(following)), backoff_s=backoff_s)
        self.do(self.desk.see(self.told(), self.now))

    @rule(seconds=st.floats(0.1, 40))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.do(self.desk.tick(self.now))

    @invariant()
    def nobody_is_lost(self) -> None:
        for name in "ab":
            flying = sum(1 for model in self.flying.values() if model == name)
            assert self.desk.flying(name) == flying
            assert self.desk.waiting(name) == sum(1 for model in self.open.values() if model == name) - flying
        assert self.desk.held == self.desk.waiting("a") + self.desk.waiting("b") <= LIMITS.held + len(self.answered)

    @invariant()
    def swaps_are_bounded(self) -> None:
        assert sum(1 for at in self.swaps if self.now - at < 60) <= LIMITS.swaps_per_minute

    def teardown(self) -> None:
        """Whatever was going on: with time, every held request is answered or sent."""
        for _ in range(80):
            self.now += 5
            for id in list(self.flying):
                del self.open[id], self.flying[id]
                self.do(self.desk.finished(id, self.now))
            for name in "ab":
                state = self.models[name].state
                other = self.models["b" if name == "a" else "a"].state
                fits = other in (S.ASLEEP, S.FAILED, S.QUEUED)
                new = {S.QUEUED: S.STARTING if fits else S.QUEUED, S.STARTING: S.READY, S.DRAINING: S.ASLEEP}.get(
                    state, state
                )
                if new is not state:
                    self.change(name, new)
            self.do(self.desk.see(self.told(), self.now))
        assert self.desk.held == 0, "somebody waits for ever"


TestAlternating = Alternating.TestCase
TestAlternating.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
