"""The expected start: what it stands on, and when there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.domain.ids import Instant, WorkloadKey
from tenure.engine import Engine
from tenure.engine.expectation import Expectation, Lasting, expect, quantile, situation
from tenure.testing import lab

S = 1_000_000
FIFO = {"queues": {"q": {"owns": {"gpu": 4}, "strategy": "StrictFIFO"}}}


def engine(*jobs: Mapping[str, Any], policy: Mapping[str, Any] = FIFO) -> Engine:
    made = Engine(lab.policy(policy))
    for at, job in enumerate(jobs):
        made.add(lab.workload({"queue": "q", **job}, at=Instant(at), priorities={}))
        while made.has_heads(Instant(0)) and made.cycle(Instant(0)).admits:
            pass
    return made


def asked(made: Engine, job: str, known: Mapping[str, Lasting]) -> Expectation:
    found = situation(made, WorkloadKey(job), Instant(0))
    if isinstance(found, str):
        return Expectation(reason=found)
    return expect(found, {WorkloadKey(k): v for k, v in known.items()})


def test_time_limits_alone() -> None:
    made = engine({"job": "1", "gpu": 4}, {"job": "2", "gpu": 4}, {"job": "3", "gpu": 1})
    limit = Lasting(name="train", limit_us=60 * S)
    found = asked(made, "3", {"1": Lasting(limit_us=60 * S, ran_us=20 * S), "2": limit, "3": limit})
    assert (found.p50, found.p90, found.basis) == (100 * S, 100 * S, "time limits of 2 jobs")


def test_the_history_of_its_name_gives_two_quantiles() -> None:
    made = engine({"job": "1", "gpu": 4}, {"job": "2", "gpu": 4})
    runs = tuple(n * S for n in range(1, 11))
    found = asked(made, "2", {"1": Lasting(name="train", runs=runs)})
    assert (found.p50, found.p90) == (5 * S, 9 * S)
    assert found.basis == 'the history of 10 runs of "train"'


def test_what_it_ran_already_rules_out_the_shorter_runs() -> None:
    runs = (1 * S, 2 * S, 10 * S, 20 * S)
    assert Lasting(runs=runs, ran_us=5 * S).left_us(0.5) == 5 * S
    assert Lasting(runs=runs, ran_us=5 * S, limit_us=6 * S).left_us(0.5) == 1 * S
    assert Lasting(runs=runs, ran_us=30 * S).left_us(0.9) == 30 * S
    assert Lasting().left_us(0.5) is None
    assert quantile((1, 2, 3, 4), 0.5) == 2


def test_without_limit_and_history_there_is_none_and_the_job_is_named() -> None:
    made = engine({"job": "1", "gpu": 4}, {"job": "2", "gpu": 4})
    found = asked(made, "2", {})
    assert found.p50 is found.p90 is None
    assert found.reason == "job 1, which comes before it, has neither a time limit nor a history of ended runs"


def test_who_does_not_stand_in_the_way_need_not_be_known() -> None:
    made = engine({"job": "1", "gpu": 2}, {"job": "2", "gpu": 2}, {"job": "3", "gpu": 2})
    assert asked(made, "3", {"2": Lasting(limit_us=9 * S)}).p50 == 9 * S


def test_what_can_never_start_is_said() -> None:
    made = engine({"job": "1", "gpu": 5})
    made.cycle(Instant(0))
    assert asked(made, "1", {}).reason.startswith("as things are it never starts: couldn't assign flavors")
    beside = engine({"job": "0", "gpu": 4}, {"job": "1", "gpu": 5})  # nobody's unknown end is to blame
    assert asked(beside, "1", {}).reason.startswith("as things are it never starts: couldn't assign flavors")
    stopped = engine({"job": "1", "gpu": 1}, policy={"queues": {"q": {"owns": {"gpu": 4}, "stop": "Hold"}}})
    assert asked(stopped, "1", {}).reason == "nothing can start there: ClusterQueue q is stopped"


def test_no_card_is_big_enough_and_that_is_the_reason() -> None:
    made = Engine(
        lab.policy({"queues": {"q": {"owns": {"gpu": 4, "memory": "40Gi"}}}}),
        lab.cards([{"id": "c", "memory": "16Gi"}]),
    )
    for job, gpu, memory in (("1", 4, "1Gi"), ("2", 1, "20Gi")):
        made.add(lab.workload({"queue": "q", "job": job, "gpu": gpu, "memory": memory}, at=Instant(0), priorities={}))
        made.cycle(Instant(0))
    assert asked(made, "2", {}).reason == (
        "as things are it never starts: no card of flavor card has 1 share(s) and 20 GiB free; there are 1, were they all empty"
    )


def test_queues_that_share_a_flavor_without_cards_do_not_wait_for_each_other() -> None:
    queue = {"owns": {"cpu": {"cpu": 4}}}
    made = Engine(lab.policy({"queues": {"q": queue, "r": queue}}), lab.cards([{"id": "c"}]))
    for job, where in (("1", "r"), ("2", "q"), ("3", "q")):
        made.add(lab.workload({"queue": where, "job": job, "cpu": 4}, at=Instant(0), priorities={}))
        made.cycle(Instant(0))
    assert asked(made, "3", {}).reason.startswith("job 2, which comes before it")


def test_a_long_line_is_sampled_and_says_so() -> None:
    made = engine(*({"job": str(n), "gpu": 1} for n in range(4)))
    for n in range(4, 5000):
        made.add(lab.workload({"job": str(n), "gpu": 1, "queue": "q"}, at=Instant(n), priorities={}))
    every = {str(n): Lasting(limit_us=60 * S) for n in range(5000)}
    found = asked(made, "4999", every)
    exact = (4999 // 4) * 60 * S
    assert found.p50 is not None
    assert abs(found.p50 - exact) < exact // 50
    assert found.basis == "time limits of 4999 jobs; of the long line one in 5 was replayed"
    del every["4500"]
    assert "job 4500, which" in asked(made, "4999", every).reason


lines = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 50)), min_size=2, max_size=12)


@settings(max_examples=80, deadline=None)
@given(lines, st.data())
def test_in_a_line_longer_runtimes_never_make_it_earlier(line: list[tuple[int, int]], data: st.DataObject) -> None:
    jobs = [{"job": f"{n:02}", "gpu": gpu} for n, (gpu, _) in enumerate(line)]
    more = data.draw(st.lists(st.integers(0, 30), min_size=len(line), max_size=len(line)))
    last = jobs[-1]["job"]

    def start(extra: list[int]) -> int:
        known = {
            str(job["job"]): Lasting(limit_us=(runs + e) * S)
            for job, (_, runs), e in zip(jobs, line, extra, strict=True)
        }
        made = engine(*jobs)
        if not any(last in made.order(q) for q in made.policy.cluster_queues):
            return 0
        found = asked(made, str(last), known)
        assert found.p50 is not None
        assert found.p50 == found.p90
        return found.p50

    assert start(more) >= start([0] * len(line))


@settings(max_examples=60, deadline=None)
@given(lines, st.lists(st.integers(1, 100), min_size=1, max_size=8), st.sampled_from(["StrictFIFO", "BestEffortFIFO"]))
def test_half_never_comes_after_nine_in_ten(line: list[tuple[int, int]], runs: list[int], strategy: str) -> None:
    jobs = [{"job": f"{n:02}", "gpu": gpu} for n, (gpu, _) in enumerate(line)]
    made = engine(*jobs, policy={"queues": {"q": {"owns": {"gpu": 4}, "strategy": strategy}}})
    known = {str(j["job"]): Lasting(name="x", runs=tuple(sorted(r * S for r in runs))) for j in jobs}
    for job in made.order("q"):
        found = asked(made, job, known)
        again = asked(made, job, known)
        assert found == again
        assert found.p50 is not None
        assert found.p90 is not None
        assert 0 <= found.p50 <= found.p90
