"""REST, on real sockets and real processes: what scripts rely on, and what is refused in which words."""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fastapi.openapi.models import OpenAPI
from prometheus_client.parser import text_string_to_metric_families
from pydantic import TypeAdapter

from tenure.portal.api.wire.base import Problem
from tenure.portal.api.wire.cards import Card, Holding, Queue
from tenure.portal.api.wire.jobs import Array, JobObject, JobPage, JobShown, Why
from tenure.portal.api.wire.policy import Checked, PolicyView
from tenure.portal.api.wire.runs import Event, RunPage, RunRecord

if TYPE_CHECKING:
    from .conftest import Answer, Door

STRANGE = '训练 "x" $(rm) \n<script>'
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def problem(answer: Answer, status: int, code: str) -> dict[str, Any]:
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json
    Problem.model_validate(body)
    assert (body["status"], body["code"]) == (status, code)
    assert body["detail"]
    return body


def test_a_job_from_submit_to_its_end(door: Door) -> None:
    answer = door.ask("POST", "/api/v1/jobs", {"argv": ["sh", "-c", "echo out; echo err >&2; exit 3"], "name": STRANGE})
    assert answer.status == 201
    job = JobObject.model_validate(answer.json)
    assert answer.headers["location"] == f"/api/v1/jobs/{job.id}"
    assert job.name == STRANGE
    assert TIME.fullmatch(answer.json["submitted_at"])

    shown = JobShown.model_validate(door.wait(job.id))
    assert shown.attempts is not None
    assert (shown.state, shown.attempts[0].exit_code) == ("ended", 3)
    assert door.ask("GET", answer.headers["location"]).json["outcome"] == "failed"
    assert door.ask("GET", f"/api/v1/jobs/{job.id}/logs").body == b"out\n"
    assert door.ask("GET", f"/api/v1/jobs/{job.id}/logs?stream=stderr").body == b"err\n"
    assert door.ask("GET", f"/api/v1/runs/{job.id}.1").json["outcome"] == "failed"
    Why.model_validate(door.ask("GET", f"/api/v1/jobs/{job.id}/why").json)


def test_an_array_is_one_thing_with_tasks(door: Door) -> None:
    answer = door.ask("POST", "/api/v1/jobs", {"argv": ["true"], "array": "1-3%2"})
    array = Array.model_validate(answer.json)
    assert array.tasks == [f"{array.id}_{n}" for n in (1, 2, 3)]
    shown = JobShown.model_validate(door.wait(array.id))
    assert [task.outcome for task in shown.tasks or ()] == ["completed"] * 3
    assert door.wait(f"{array.id}_2")["array_index"] == 2
    tasks = door.ask("GET", f"/api/v1/jobs?array={array.id}").json
    assert {job["id"] for job in JobPage.model_validate(tasks).model_dump()["items"]} == set(array.tasks)


def test_pages_of_jobs_neither_skip_nor_repeat(door: Door) -> None:
    made = [door.submit("true", project="paged") for _ in range(5)]
    seen, cursor = [], ""
    while True:
        page = door.ask("GET", f"/api/v1/jobs?all=1&project=paged&limit=2{cursor}").json
        seen += [job["id"] for job in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert seen == made[::-1]


def test_the_same_key_is_the_same_job(door: Door) -> None:
    key = {"Idempotency-Key": "once"}
    body = {"argv": ["true"], "name": "once"}
    first = door.ask("POST", "/api/v1/jobs", body, headers=key)
    again = door.ask("POST", "/api/v1/jobs", body, headers=key)
    assert (first.status, again.status) == (201, 201)
    assert first.json["id"] == again.json["id"]
    problem(door.ask("POST", "/api/v1/jobs", {**body, "name": "other"}, headers=key), 409, "IdempotencyKeyReused")


def test_a_client_that_leaves_right_after_posting_made_the_job_once_or_not_at_all(door: Door) -> None:
    """With its key it finds out which: the job that it made, or the one that this makes."""
    body = json.dumps({"argv": ["true"], "name": "left", "project": "left"}).encode()
    head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nIdempotency-Key: k%d\r\n\r\n"
    for number in range(20):
        connection = door.unix()
        connection.connect()
        connection.sock.sendall((head % number).encode() + body[: len(body) - (number % 2)])
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
    answers = [
        door.ask("POST", "/api/v1/jobs", body, headers={"Idempotency-Key": f"k{number}"}) for number in range(20)
    ]
    ids = {answer.json["id"] for answer in answers}
    assert {answer.status for answer in answers} == {201}
    assert len(ids) == 20
    listed = door.ask("GET", "/api/v1/jobs?all=1&project=left&limit=100").json["items"]
    assert {job["id"] for job in listed} == ids


def test_verbs_follow_a_colon(door: Door) -> None:
    job = door.submit("sleep", "60", hold=True)
    assert door.ask("POST", f"/api/v1/jobs/{job}:release", {}).status == 200
    assert door.ask("POST", f"/api/v1/jobs/{job}:cancel", {"reason": "enough", "grace_s": 1}).status == 200
    assert door.wait(job)["outcome"] == "cancelled"
    assert door.ask("POST", f"/api/v1/jobs/{job}:cancel").status == 200  # asking twice is asking once
    again = door.ask("POST", f"/api/v1/jobs/{job}:retry")
    assert again.status == 200, again.body
    assert door.ask("POST", f"/api/v1/jobs/{again.json['id']}:hold").status in (200, 409)
    assert door.ask("POST", f"/api/v1/jobs/{again.json['id']}:cancel", {"grace_s": 1}).status == 200
    assert door.wait(again.json["id"])["outcome"] == "cancelled"


def test_every_branch_of_the_error_tree_is_a_problem(door: Door) -> None:
    ended = door.submit("true")
    door.wait(ended)
    ask = door.ask
    assert problem(ask("GET", "/api/v1/jobs/999"), 404, "NotFound")["type"] == "urn:tenure:problem:NotFound"
    problem(ask("GET", "/api/v1/runs/999.1"), 404, "NotFound")
    problem(ask("GET", "/nowhere"), 404, "NotFound")
    problem(ask("POST", "/api/v1/jobs/1:dance"), 404, "NotFound")
    problem(ask("GET", "/static/none.js"), 404, "NotFound")
    assert "GET, POST" in problem(ask("PUT", "/api/v1/jobs"), 405, "MethodNotAllowed")["detail"]
    problem(ask("POST", f"/api/v1/jobs/{ended}:cancel"), 409, "JobEnded")
    problem(ask("POST", "/api/v1/jobs", b"{"), 400, "InvalidJSON")
    problem(ask("POST", "/api/v1/jobs", b"[" * 100_000), 400, "InvalidJSON")
    problem(ask("POST", "/api/v1/jobs", []), 400, "InvalidJSON")
    assert problem(ask("POST", "/api/v1/jobs", {}), 422, "InvalidRequest")["field"] == "argv"
    assert (
        problem(ask("POST", "/api/v1/jobs", {"argv": ["x"], "shares": "x"}), 422, "InvalidRequest")["field"] == "shares"
    )
    assert (
        "gpu_memory"
        in problem(ask("POST", "/api/v1/jobs", {"argv": ["x"], "gpu_memry": 1}), 422, "UnknownField")["detail"]
    )
    assert problem(ask("GET", "/api/v1/jobs?limit=0"), 422, "InvalidRequest")["field"] == "limit"
    assert problem(ask("POST", f"/api/v1/jobs/{ended}:cancel", {"grace": 1}), 422, "InvalidRequest")["field"] == "grace"
    file = {"name": "bad.yaml", "text": "apiVersion: batch/v1\nkind: Job\nspec:\n  paralelism: 2\n"}
    listed = problem(ask("POST", "/api/v1/jobs", {"file": file}), 422, "InvalidManifest")
    assert {"file", "line", "field", "message"} <= set(listed["problems"][0])
    huge = {"Content-Length": str(10**9)}
    problem(ask("POST", "/api/v1/jobs", b"{}", headers=huge), 413, "TooLarge")


def test_an_environment_of_a_megabyte_is_taken(door: Door) -> None:
    environment = {f"V{n}": "x" * 1000 for n in range(1000)} | {"PATH": "/usr/bin:/bin"}
    answer = door.ask("POST", "/api/v1/jobs", {"argv": ["sh", "-c", "echo ${#V7}"], "environment": environment})
    assert answer.status == 201, answer.body
    assert door.wait(answer.json["id"])["outcome"] == "completed"
    assert door.ask("GET", f"/api/v1/jobs/{answer.json['id']}/logs").body == b"1000\n"


def test_waiting_ends_with_the_job_and_not_before(door: Door) -> None:
    runs = door.submit("sleep", "60")
    assert door.ask("GET", f"/api/v1/jobs/{runs}:wait?timeout=0").status == 204
    door.ask("POST", f"/api/v1/jobs/{runs}:cancel", {"grace_s": 1})
    late = []
    for job in (runs, *(door.submit("sleep", "0.1") for _ in range(4))):
        shown = door.wait(job)
        late.append(time.time() - datetime.fromisoformat(shown["ended_at"]).timestamp())
    assert min(late) < 1, late
    problem(door.ask("GET", "/api/v1/jobs/999:wait"), 404, "NotFound")


def test_more_waiting_clients_than_threads_block_nobody(door: Door) -> None:
    job = door.submit("sleep", "60")
    answers: list[int] = []
    waiting = [
        threading.Thread(target=lambda: answers.append(door.ask("GET", f"/api/v1/jobs/{job}:wait?timeout=30").status))
        for _ in range(100)
    ]
    for thread in waiting:
        thread.start()
    assert door.ask("GET", "/healthz").body == b"ok\n"
    assert door.ask("GET", f"/api/v1/jobs/{job}").status == 200
    door.ask("POST", f"/api/v1/jobs/{job}:cancel", {"grace_s": 1})
    for thread in waiting:
        thread.join(20)
    assert answers == [200] * 100


def test_a_log_is_followed_to_the_end_of_its_attempt(door: Door) -> None:
    script = "for i in 1 2 3 4 5; do printf 'step %s\\r' $i; sleep 0.05; done; printf '\\377\\033[31mred\\n'"
    job = door.submit("sh", "-c", script)
    followed = door.ask("GET", f"/api/v1/jobs/{job}/logs?follow=1").body
    assert followed == b"".join(b"step %d\r" % n for n in range(1, 6)) + b"\xff\x1b[31mred\n"
    whole = door.ask("GET", f"/api/v1/jobs/{job}/logs")
    assert whole.body == followed
    assert (whole.headers["x-tenure-offset"], whole.headers["x-tenure-size"]) == ("0", str(len(followed)))
    part = door.ask("GET", f"/api/v1/jobs/{job}/logs?offset=7&follow=1")
    assert part.body == followed[7:]
    assert door.ask("GET", f"/api/v1/jobs/{job}/logs?tail=1").body == followed
    assert door.ask("GET", f"/api/v1/jobs/{job}/logs?offset=10000").body == b""
    problem(door.ask("GET", f"/api/v1/jobs/{job}/logs?offset=1&tail=1"), 422, "InvalidRequest")
    problem(door.ask("GET", f"/api/v1/jobs/{job}/logs?attempt=7"), 404, "NotFound")


def test_following_across_attempts_goes_on_where_the_job_does(door: Door) -> None:
    script = 'echo "attempt $TENURE_ATTEMPT"; test "$TENURE_ATTEMPT" -ge 2'
    job = door.submit("sh", "-c", script, backoff_limit=3)
    answer = door.ask("GET", f"/api/v1/jobs/{job}/logs?follow=1&across=1")
    assert answer.body == b"attempt 1\nattempt 2\n"
    assert door.ask("GET", f"/api/v1/jobs/{job}/logs?attempt=1&follow=1").body == b"attempt 1\n"


def test_more_followers_than_threads_wait_for_a_job_that_waits(door: Door) -> None:
    """Each is told everything once it runs, and until then they take no thread from anybody."""
    job = door.submit("echo", "at last", hold=True)
    heard: list[bytes] = []
    path = f"/api/v1/jobs/{job}/logs?follow=1&across=1"
    followers = [threading.Thread(target=lambda: heard.append(door.ask("GET", path).body)) for _ in range(60)]
    for follower in followers:
        follower.start()
    for _ in range(10):
        assert door.ask("GET", f"/api/v1/jobs/{job}").json["state"] == "queued"
    door.ask("POST", f"/api/v1/jobs/{job}:release", {})
    for follower in followers:
        follower.join(20)
    assert heard == [b"at last\n"] * 60


def test_an_arrays_task_is_followed_by_its_index(door: Door) -> None:
    script = "echo task $SLURM_ARRAY_TASK_ID $TENURE_JOB_ID"
    array = door.ask("POST", "/api/v1/jobs", {"argv": ["sh", "-c", script], "array": "4-5"}).json["id"]
    body = door.ask("GET", f"/api/v1/jobs/{array}/logs?follow=1&across=1&task=5").body
    assert f"{array}_5" in body.decode()
    problem(door.ask("GET", f"/api/v1/jobs/{array}/logs"), 422, "InvalidRequest")


def test_every_answer_is_what_the_document_says(door: Door) -> None:
    script = "import tenure\nwith tenure.Run('recorded', {'a': 1}) as run: run.result(b=2)\n"
    ended = door.submit(sys.executable, "-c", script, name="recorded", shares=1, gpu_memory="1Gi")
    assert door.wait(ended)["outcome"] == "completed"
    running = door.submit("sleep", "60", shares=3, gpu_memory="2Gi", name="holds")
    waits = door.submit("sleep", "60", shares=8, gpu_memory="2Gi", name="waits")
    door.is_(running, "running")
    door.waits(waits)

    cards = TypeAdapter(list[Card]).validate_python(door.ask("GET", "/api/v1/cards").json)
    assert (cards[0].source, cards[0].shares, cards[0].memory_measured) == ("declared", 8, None)
    assert [(holder.id, holder.shares) for holder in cards[0].holders] == [(running, 3)]
    queues = TypeAdapter(list[Queue]).validate_python(door.ask("GET", "/api/v1/queues").json)
    assert {queue.name for queue in queues} == {"general", "large-model"}
    assert [job.reason for queue in queues for job in queue.jobs] == ["WaitingForQuota"]
    held = TypeAdapter(list[Holding]).validate_python(door.ask("GET", "/api/v1/cards/timeline").json)
    assert {one.job_id: one.to is None for one in held}.items() >= {ended: False, running: True}.items()
    for job in JobPage.model_validate(door.ask("GET", "/api/v1/jobs?all=1").json).items:
        JobShown.model_validate(door.ask("GET", f"/api/v1/jobs/{job.id}").json)
        Why.model_validate(door.ask("GET", f"/api/v1/jobs/{job.id}/why").json)
    TypeAdapter(list[Event]).validate_python(door.ask("GET", "/api/v1/events?limit=5000").json)
    for row in RunPage.model_validate(door.ask("GET", "/api/v1/runs").json).items:
        RunRecord.model_validate(door.ask("GET", f"/api/v1/runs/{row.run_id}").json)
    record = door.ask("GET", f"/api/v1/runs/{ended}.1").json
    assert (record["config"], record["results"]) == ({"a": 1}, {"b": 2})
    difference = door.ask("GET", f"/api/v1/runs/{ended}.1/diff/{ended}.1").json
    assert difference["different"]["config"] == 0
    policy = PolicyView.model_validate(door.ask("GET", "/api/v1/policy").json)
    assert "kind: ClusterQueue" in policy.yaml
    assert door.ask("GET", "/api/v1/status").json["card_source"] == "declared"
    assert door.ask("GET", "/readyz").json == {"ready": True}
    bad = {"files": [{"name": "a.yaml", "text": "kind: ClusterQueueue\n"}]}
    checked = Checked.model_validate(door.ask("POST", "/api/v1/policy:check", bad).json)
    assert (checked.ok, checked.problems[0]["file"]) == (False, "a.yaml")
    assert Checked.model_validate(door.ask("POST", "/api/v1/policy:reload").json).ok
    for job in door.ask("GET", "/api/v1/jobs").json["items"]:
        door.ask("POST", f"/api/v1/jobs/{job['id']}:cancel", {"grace_s": 1})
        door.wait(job["id"])


def test_metrics_are_kueues_names_and_hold_no_text_of_users(door: Door) -> None:
    job = door.submit("sleep", "30", name="SECRET-NAME", shares=2, gpu_memory="1Gi")
    text = door.ask("GET", "/metrics").body.decode()
    door.ask("POST", f"/api/v1/jobs/{job}:cancel", {"grace_s": 1})
    found = {family.name: family for family in text_string_to_metric_families(text)}
    assert {
        "tenure_pending_workloads",
        "tenure_admitted_active_workloads",
        "tenure_cluster_queue_nominal_quota",
    } <= set(found)
    nominal = {
        (s.labels["cluster_queue"], s.labels["resource"]): s.value
        for s in found["tenure_cluster_queue_nominal_quota"].samples
    }
    assert nominal["general", "nvidia.com/gpu"] == 8
    assert "SECRET" not in text
    door.wait(job)


def test_the_document_is_openapi_31_and_complete(door: Door) -> None:
    document = door.ask("GET", "/openapi.json", over="tcp").json
    OpenAPI.model_validate(document)
    assert document["openapi"].startswith("3.1")
    operations = [
        (path, method, operation) for path, item in document["paths"].items() for method, operation in item.items()
    ]
    names = [operation["operationId"] for _, _, operation in operations]
    assert len(names) == len(set(names))
    for path, method, operation in operations:
        inside = set(re.findall(r"{(\w+)}", path))
        declared = {p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"}
        assert inside == declared, (path, method)
        for status, answer in operation["responses"].items():
            assert answer["description"]
            if int(status) >= 400:
                assert list(answer["content"]) == ["application/problem+json"], (path, status)
    assert {"/api/v1/jobs/{id}:cancel", "/api/v1/jobs/{id}:wait", "/api/v1/events"} <= set(document["paths"])
    references = set(re.findall(r'"\$ref": ?"#/components/schemas/(\w+)"', json.dumps(document)))
    assert references <= set(document["components"]["schemas"])
    assert "JobSubmission" in references


@pytest.mark.parametrize("path", ["/api/v1/jobs/%2e%2e", "/api/v1/runs/..%2f..%2fetc", "/static/..%2f..%2fserver.py", "/static/%2e%2e/auth.py", "/api/v1/jobs/%00", "/jobs/%ff"])  # fmt: skip
def test_no_path_leads_out(door: Door, path: str) -> None:
    assert door.ask("GET", path).status in (400, 404)


def test_the_page_about_rest_names_every_route_and_no_other(door: Door) -> None:
    text = (Path(__file__).parents[2] / "docs" / "portal.md").read_text()
    told = set(re.findall(r"^\| (GET|POST|PATCH|DELETE) \| `([^`]+)` \|", text, re.MULTILINE))
    document = door.ask("GET", "/openapi.json").json
    assert told == {(method.upper(), path) for path, item in document["paths"].items() for method in item}
