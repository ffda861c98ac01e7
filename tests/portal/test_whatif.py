"""What-if and capacity over REST."""

from __future__ import annotations

from tenure.portal.api.wire.jobs import Why
from tenure.portal.api.wire.policy import Tried

from .conftest import Door


def test_a_policy_is_tried_and_capacity_is_told(door: Door) -> None:
    job = door.submit("true", shares=1, gpu_memory="1Gi")
    door.wait(job)
    text = door.ask("GET", "/api/v1/policy").json["yaml"]
    answer = door.ask("POST", "/api/v1/policy:try", {"files": [{"name": "a.yaml", "text": text}], "since_s": 3600})
    assert answer.status == 200
    tried = Tried.model_validate(answer.json)
    assert tried.before == tried.after
    assert tried.before.total.started >= 1
    refused = door.ask("POST", "/api/v1/policy:try", {"files": [{"name": "a.yaml", "text": "kind: Nothing"}]})
    assert (refused.status, refused.json["problems"][0]["file"]) == (422, "a.yaml")
    assert door.ask("POST", "/api/v1/policy:try", {"files": [], "since_s": -1}).status == 422
    report = door.ask("GET", "/api/v1/capacity?since_s=3600")
    assert report.status == 200
    assert report.json["jobs"] >= 1
    assert door.ask("GET", "/api/v1/capacity?since_s=0").status == 422


def test_why_tells_the_expected_start_or_why_there_is_none(door: Door) -> None:
    whole = door.submit("sleep", "30", shares=8, gpu_memory="1Gi", time="10m", name="holder")
    waits = door.submit("true", shares=1, gpu_memory="1Gi", name="waits")
    told = Why.model_validate(door.ask("GET", f"/api/v1/jobs/{waits}/why").json)
    assert (told.expected_start is None) == (told.expected_start_reason is not None)
    spared = door.ask("GET", f"/api/v1/jobs/{waits}/why?forecast=false").json
    assert spared["expected_start"] is spared["expected_start_reason"] is None
    for job in (waits, whole):
        door.ask("POST", f"/api/v1/jobs/{job}:cancel", {"grace_s": 1})
        door.wait(job)
