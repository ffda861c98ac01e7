"""LimitRange and ResourceQuota as pure rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.domain.errors import Conflict, InvalidRequest
from tenure.domain.job import JobSpec
from tenure.domain.policy import LimitRange, ResourceQuota
from tenure.manifests.caps import JOBS, check_limits, check_quotas, with_defaults

GI = 1 << 30
RANGE = LimitRange(
    name="lr", namespace="team", default_requests={"cpu": 500, "memory": GI, "example.com/x": 2},
    minimum={"cpu": 100}, maximum={"memory": 4 * GI},
)  # fmt: skip


def test_defaults_fill_only_what_is_not_stated_and_only_in_their_namespace() -> None:
    spec = with_defaults(JobSpec(name="a", argv=("true",), namespace="team", cpus=2000), [RANGE])
    assert (spec.cpus, spec.memory, spec.requests) == (2000, GI, {"example.com/x": 2})
    assert spec.notes == (
        "memory 1Gi is the default of LimitRange lr",
        "example.com/x 2 is the default of LimitRange lr",
    )
    other = JobSpec(name="a", argv=("true",))
    assert with_defaults(other, [RANGE]) == other
    assert with_defaults(spec, [RANGE]) == spec


@pytest.mark.parametrize(
    ("requests", "said"),
    [({"cpu": 50}, "wants at least 100m (--cpus)"), ({}, "asks for none of cpu"), ({"cpu": 100, "memory": 5 * GI}, "wants at most 4Gi (--memory)")],
)  # fmt: skip
def test_outside_the_bounds_says_the_bound(requests: dict[str, int], said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_limits(JobSpec(name="a", namespace="team"), requests, [RANGE])
    assert said in refused.value.message
    check_limits(JobSpec(name="a", namespace="elsewhere"), requests, [RANGE])


def test_a_quota_says_what_is_used_and_what_would_fit() -> None:
    quota = ResourceQuota(name="rq", namespace="team", hard={"requests.nvidia.com/gpu": 4, JOBS: 2})
    check_quotas("team", {"nvidia.com/gpu": 3, JOBS: 1}, {"nvidia.com/gpu": 1, JOBS: 1}, [quota])
    check_quotas("other", {"nvidia.com/gpu": 9}, {}, [quota])
    with pytest.raises(Conflict, match="asks for 2, and 3 is used by its live jobs; 1 would fit now"):
        check_quotas("team", {"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 3}, [quota])
    with pytest.raises(InvalidRequest, match="at most 4 can ever"):
        check_quotas("team", {"nvidia.com/gpu": 5}, {}, [quota])
    with pytest.raises(Conflict, match="at 2 jobs"):
        check_quotas("team", {JOBS: 1}, {JOBS: 2}, [quota])


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_never_beyond_the_cap(asked: int, used: int, hard: int) -> None:
    quota = ResourceQuota(name="rq", namespace="team", hard={"requests.cpu": hard})
    try:
        check_quotas("team", {"cpu": asked}, {"cpu": used}, [quota])
    except (Conflict, InvalidRequest):
        assert asked + used > hard
    else:
        assert asked == 0 or asked + used <= hard
