"""Beyond Kueue, from a document beside the policy to the diary: on a real platform, with the default policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tenure.control import verbs, views
from tenure.domain.errors import InvalidManifest

from .conftest import ME, House

OPTIONS = "apiVersion: tenure.dev/v1\nkind: EngineOptions\nspec: %s\n"


def ask_for(house: House, spec: str) -> None:
    Path(house.home / "policy" / "options.yaml").write_text(OPTIONS % spec)
    verbs.reload_policy(house.platform, caller=ME)


def test_who_has_just_begun_is_spared_until_its_time_is_over_and_why_says_so(house: House) -> None:
    ask_for(house, "{minRuntime: 2s}")
    young = house.gpu("sleep", "60", shares=8, priority="batch")
    house.wait(young, "running")
    high = house.gpu("true", shares=8, priority="training")
    house.wait_reason(high, "WaitingForQuota")
    said = [h["because"] for b in views.why(house.platform, high)["blockers"] for h in b["held_by"]]
    assert any("minRuntime: it has had its place for" in because for because in said), said
    house.wait(high)  # nobody did anything: the time alone
    evicted = house.show(young)["attempts"][0]["evicted"]
    started = house.show(young)["attempts"][0]["started_at"]
    assert (evicted["by"], evicted["at"] > started) == (high, True)


def test_two_that_take_turns_are_stopped_and_the_diary_has_both_names(house: House) -> None:
    ask_for(house, "{livelock: {takes: 2, within: 1h}}")
    engine = house.platform.engine
    jobs = [house.gpu("sleep", "60", shares=8, priority="batch", name=n, grace="1s") for n in ("ping", "pong")]
    first, second = jobs
    house.wait(first, "running")
    house.wait_reason(second, "WaitingForQuota")  # the loop has heard of it

    def raise_priority(job: str, priority: int) -> None:
        """As an operator's change of a class would: the loop hears of it."""
        with house.platform.conductor.lock:
            live = house.platform.conductor.live[job]  # type: ignore[index]
            live.priority = priority
            engine.update(live.workload(house.platform.cards))
        house.platform.conductor.wake()

    raise_priority(second, 3000)
    house.wait(second, "running")
    raise_priority(first, 3001)
    house.until("turned", lambda: house.show(first)["state"] == "running" and house.show(second)["state"] == "queued")
    raise_priority(second, 3002)

    def told() -> list[dict[str, object]]:
        return [e for e in views.events(house.platform, limit=1000) if e["kind"] == "Livelock"]

    (event,) = house.until("it is told", told)
    assert event["data"] == {
        "keeper": first, "keeper_name": "ping", "other": second, "other_name": "pong", "takes": 2, "within_s": 3600.0,
    }  # fmt: skip
    assert house.show(first)["state"] == "running"
    said = [h["because"] for b in views.why(house.platform, second)["blockers"] for h in b["held_by"]]
    assert any("livelock: the two took the place from each other 2 times" in because for because in said), said
    house.wait(house.submit("true"))
    assert len(told()) == 1


def test_a_document_that_is_wrong_changes_nothing(house: House) -> None:
    ask_for(house, "{minRuntime: 7s}")
    with pytest.raises(InvalidManifest, match=r"options\.yaml"):
        ask_for(house, "{minRuntime: never}")
    assert house.platform.engine.options.min_runtime_us == 7_000_000
    Path(house.home / "policy" / "options.yaml").unlink()
    verbs.reload_policy(house.platform, caller=ME)
    assert house.platform.engine.options.min_runtime_us == 0


def test_a_policy_is_replaced_while_work_runs_as_a_whole_or_not_at_all(house: House) -> None:
    """Whatever the directory says, who holds keeps it, nobody starts twice, and a bad file changes nothing."""
    jobs = [house.gpu("sleep", "60", name=f"j{n}") for n in range(12)]
    house.until("eight run", lambda: sum(house.show(j)["state"] == "running" for j in jobs) == 8)
    policy = house.platform.policy
    files = {path: path.read_text() for path in policy.files}
    for n in range(6):
        ask_for(house, f"{{minRuntime: {n + 1}s, reserveAfter: 1h}}")
        with pytest.raises(InvalidManifest):
            ask_for(house, "{reserveAfter: -}")
        assert house.platform.engine.options.min_runtime_us == (n + 1) * 1_000_000
    for path, text in files.items():  # half the shares, under load
        path.write_text(
            text.replace('nominalQuota: "8"', 'nominalQuota: "4"').replace("nominalQuota: 8\n", "nominalQuota: 4\n")
        )
    ask_for(house, "{}")
    assert sum(house.show(j)["state"] == "running" for j in jobs) == 8  # quota cut below use evicts nobody
    assert all(len(house.show(j)["attempts"]) <= 1 for j in jobs)
    general = next(q for q in views.queues(house.platform) if q["name"] == "general")
    shares = next(r for r in general["resources"] if r["resource"] == "nvidia.com/gpu")
    assert (shares["nominal"], shares["used"]) == (4, 8)
    for path, text in files.items():
        path.write_text(text)
    ask_for(house, "{}")
    for job in jobs[:8]:
        house.cancel(job, grace_s=0.2)
    house.until("the rest runs", lambda: all(house.show(j)["state"] == "running" for j in jobs[8:]))


def test_trying_a_policy_tries_what_it_asks_for_beyond_kueue(house: House) -> None:
    young = house.gpu("sleep", "1", shares=8, priority="batch")
    house.wait(young, "running")
    house.wait(house.gpu("true", shares=8, priority="training"))
    assert house.show(young)["attempts"][0]["evicted"]
    house.wait(young)
    files = [[path.name, path.read_text()] for path in house.platform.policy.files]
    same = views.try_policy(house.platform, files)
    spared = views.try_policy(house.platform, [*files, ["options.yaml", OPTIONS % "{minRuntime: 1h}"]])

    def preemptions(tried: dict[str, Any]) -> list[int]:
        return [tried[side]["total"]["preempted"] for side in ("before", "after")]

    assert preemptions(same) == [1, 1]
    assert preemptions(spared) == [1, 0]
