"""Models that take turns on one card, for minutes of played time: nobody starves, swaps are bounded, everybody is told."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.gateway.pacing import Swaps
from tenure.gateway.words import Limits

from .card import Asked, Card, Client

FIVE_MINUTES = 300.0


def played(card: Card, *clients: Client, seconds: float = FIVE_MINUTES) -> None:
    for client in clients:
        card.client(client, seconds)
    card.run(seconds + 200)  # and to the end of what was asked
    card.check()


def answered(client: Client) -> list[Asked]:
    return [one for one in client.asked if one.refused is None and not one.left]


def test_four_clients_alternate_for_five_minutes_and_all_are_answered() -> None:
    card = Card("a", "b", limits=Limits())
    clients = [Client(models=("a", "b") if n % 2 else ("b", "a")) for n in range(4)]
    played(card, *clients)
    assert all(len(answered(client)) == len(client.asked) for client in clients), "nobody has to be refused"
    longest = max(one.sent_at - one.at for client in clients for one in client.asked if one.sent_at is not None)
    assert longest <= 25, "the card changes hands all the time; nobody waits for the rest of a minute"
    assert 25 <= len(card.swaps) <= 31, "six a minute are there to be used"
    gaps = [second - first for first, second in zip(card.swaps, card.swaps[1:], strict=False)]
    assert max(gaps) <= 20


def test_a_person_who_changes_their_mind_twice_does_not_wait_for_it() -> None:
    card = Card("a", "b", limits=Limits())
    person = Client(models=("a", "b", "a"), think=3)
    played(card, person, seconds=12)
    waits = [one.sent_at - one.at for one in person.asked[:3] if one.sent_at is not None]
    assert max(waits) <= 3


def test_two_busy_crowds_have_turns_of_a_useful_length() -> None:
    """Ten clients for each, who never pause: no model is ever quiet, and each is up for as long as the other waits."""
    card = Card("a", "b", limits=Limits(), load=4)
    crowds = {name: [Client(models=(name,), takes=0.5) for _ in range(10)] for name in "ab"}
    played(card, *crowds["a"], *crowds["b"])
    share = {name: sum(len(answered(one)) for one in crowd) for name, crowd in crowds.items()}
    assert min(share.values()) >= 0.7 * max(share.values()), share
    assert sum(share.values()) >= 0.4 * FIVE_MINUTES * 20, "most of the time goes to answers"


def test_a_long_stream_is_never_cut_and_the_others_hear_when() -> None:
    card = Card("a", "b", limits=Limits())
    long = Client(models=("a",), takes=250, think=1000)
    other = Client(models=("b",))
    played(card, long, other)
    assert long.asked[0].over_at == pytest.approx(251, abs=1)
    told = [one for one in other.asked if one.refused is not None]
    assert told
    assert len(answered(other)) > 5
    assert all(one.refused is None for one in other.asked if one.at > 255)


def test_a_stream_of_ten_minutes_does_not_keep_its_neighbours_from_the_same_model() -> None:
    """Nobody else can have the place before its end: to hold up all who ask the model that is up would help nobody."""
    card = Card("a", "b", limits=Limits())
    long = Client(models=("a",), takes=600, think=1000)
    crowd = [Client(models=("a",), takes=1, think=1) for _ in range(3)]
    other = Client(models=("b",), think=1)
    played(card, long, *crowd, other, seconds=700)
    assert long.asked[0].over_at == pytest.approx(601, abs=1)
    for one in crowd:
        assert len(answered(one)) > 150, "it took nothing new for less than half of the time"
    told = [one.refused.retry_after_s or 0 for one in other.asked if one.refused is not None]
    assert told
    assert min(told) >= 100, "a stream that has lasted for two minutes is thought to last as long again"
    assert other.asked[-1].refused is None
    assert len(answered(other)) >= 3, "and once it has ended there are turns"


def test_streams_that_follow_each_other_do_not_keep_a_place_for_ever() -> None:
    card = Card("a", "b", limits=Limits())
    streams = [Client(models=("a",), takes=takes) for takes in (70, 55, 90)]
    other = Client(models=("b",))
    played(card, *streams, other, seconds=1200)
    assert len(answered(other)) >= 3
    assert min(len(answered(one)) for one in streams) >= 3


def test_twenty_models_on_one_place_and_the_time_that_they_are_told_is_true() -> None:
    """A round takes 200 s, and nobody is held for more than 30: who comes again when told to is soon answered."""
    names = tuple(f"m{n}" for n in range(20))
    card = Card(*names, limits=Limits(hold_s=30))
    clients = [Client(models=(name,), takes=1, think=5) for name in names]
    played(card, *clients, seconds=1200)
    for client in clients:
        assert len(answered(client)) >= 3
        in_a_row = longest = 0
        for one in client.asked:
            in_a_row = in_a_row + 1 if one.refused is not None else 0
            longest = max(longest, in_a_row)
        assert longest <= 4


def test_who_never_waits_gets_a_turn_too() -> None:
    """Refused at once and told when: the model comes up for them, and stays until they are there."""
    card = Card("a", "b", limits=Limits())
    crowd = [Client(models=("a",), takes=0.5) for _ in range(3)]
    hasty = Client(models=("b",), patient=False, think=1)
    played(card, *crowd, hasty)
    assert len(answered(hasty)) >= 5
    assert min(len(answered(one)) for one in crowd) >= 100


@given(
    limits=st.builds(
        Limits,
        hold_s=st.floats(5, 120),
        patience_s=st.floats(0.5, 20),
        residence_s=st.floats(0, 10),
        drain_s=st.floats(1, 60),
        quiet_s=st.floats(0.1, 3),
        swaps_per_minute=st.integers(1, 8),
        swaps_at_once=st.integers(1, 3),
    ),
    names=st.integers(2, 4).map(lambda n: "abcd"[:n]),
    clients=st.lists(
        st.builds(
            Client,
            models=st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(tuple),
            takes=st.one_of(st.floats(0.05, 2), st.floats(10, 60)),
            think=st.floats(0, 15),
            patient=st.booleans(),
            leaves_after=st.one_of(st.none(), st.floats(0.1, 30)),
        ),
        min_size=1,
        max_size=6,
    ),
    load=st.floats(0.1, 20),
    leave=st.floats(0.05, 3),
    lag=st.floats(0, 1),
)
@settings(max_examples=60, deadline=None)
def test_whatever_they_do_each_has_one_end_within_its_bound(
    limits: Limits, names: str, clients: list[Client], load: float, leave: float, lag: float
) -> None:
    card = Card(*names, limits=limits, load=load, leave=leave, lag=lag)
    played(card, *clients)


@given(
    think=st.floats(0, 5),
    takes=st.floats(0.05, 2),
    load=st.floats(0.1, 10),
    count=st.integers(2, 3),
    each=st.integers(1, 4),
    per_minute=st.integers(2, 8),
)
@settings(max_examples=60, deadline=None)
def test_nobody_starves(think: float, takes: float, load: float, count: int, each: int, per_minute: int) -> None:
    """Each that waits patiently is answered within a round of turns: of models, at the pace of the swaps."""
    names = "abc"[:count]
    card = Card(*names, limits=Limits(swaps_per_minute=per_minute, hold_s=600), load=load)
    clients = [
        Client(models=tuple(names[n % count :] + names[: n % count]), takes=takes, think=think)
        for n in range(count * each)
    ]
    played(card, *clients)
    turn = max(2 * 60 / per_minute, 10) + load + takes + 5
    for client in clients:
        for one in client.asked:
            assert one.sent_at is not None
            assert one.sent_at - one.at <= count * turn


@given(st.lists(st.floats(0, 40), min_size=1, max_size=60), st.integers(1, 8), st.integers(1, 4))
def test_swaps_are_made_when_due_and_never_more_a_minute(pauses: list[float], most: int, at_once: int) -> None:
    swaps, now, made = Swaps(Limits(swaps_per_minute=most, swaps_at_once=at_once)), 0.0, []
    for pause in pauses:
        now += pause
        wait = swaps.due_in(now)
        assert 0 <= wait <= 60
        now += wait
        assert swaps.due_in(now) == pytest.approx(0, abs=1e-6)
        swaps.made(now)
        made.append(now)
    assert all(sum(1 for other in made if at <= other < at + 60 - 1e-6) <= most for at in made)
