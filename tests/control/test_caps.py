"""A namespace's caps at submit, on a real platform."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tenure.control import verbs
from tenure.domain.errors import Conflict, InvalidRequest

from .conftest import ME, House

CAPS = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: cap, namespace: default}
spec: {hard: {requests.nvidia.com/gpu: 4, count/jobs.batch: 5}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: lr, namespace: default}
spec: {limits: [{type: Container, defaultRequest: {cpu: 250m}, max: {tenure.dev/gpu-memory: 4Gi}}]}
"""


@pytest.fixture
def capped(house: House) -> House:
    Path(house.home / "policy" / "caps.yaml").write_text(CAPS)
    verbs.reload_policy(house.platform, caller=ME)
    return house


def test_what_waits_and_what_runs_counts_and_an_end_makes_room(capped: House) -> None:
    first = capped.gpu("sleep", "60", shares=3)
    assert "cpu 250m is the default of LimitRange lr" in capped.show(first)["notes"]
    assert capped.show(first)["spec"]["cpus"] == 250
    with pytest.raises(Conflict, match="3 is used by its live jobs; 1 would fit now") as refused:
        capped.gpu("true", shares=2, hold=True)
    assert refused.value.code == "ExceedsQuota"
    with pytest.raises(InvalidRequest, match="at most 4 can ever"):
        capped.gpu("true", gang="5")
    with pytest.raises(InvalidRequest, match="wants at most 4Gi"):
        capped.gpu("true", memory="5Gi")
    with pytest.raises(Conflict, match="at 5 jobs; this asks for 5, and 1 is used"):
        capped.submit("true", array="1-5")
    held = capped.gpu("true", hold=True)  # waits, and counts
    with pytest.raises(Conflict):
        capped.gpu("true")
    capped.cancel(held)
    capped.wait(capped.gpu("true"))
    capped.cancel(first, grace_s=0.2)
    capped.wait(first)
    with pytest.raises(InvalidRequest, match="at 5 jobs"):
        verbs.submit(capped.platform, {"argv": ["true"], "array": "1-6", "workdir": "/"}, caller=ME)
    again = verbs.retry(capped.platform, first, caller=ME)["id"]
    with pytest.raises(Conflict):
        verbs.retry(capped.platform, first, caller=ME)
    capped.cancel(again, grace_s=0.2)


def test_two_at_once_do_not_both_take_the_last_room(capped: House) -> None:
    def one(_: int) -> bool:
        try:
            capped.gpu("true", hold=True)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(one, range(12))) == 4
