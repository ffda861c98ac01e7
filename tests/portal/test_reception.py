"""The way of a submission: beside slow ones, with many others, and past the framework, it is told what it would be alone."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from tenure.domain.errors import Conflict
from tenure.portal.direct import Direct

if TYPE_CHECKING:
    from .conftest import Door


def test_a_tree_that_takes_long_to_read_holds_up_nobody_else(door: Door, tmp_path: Path) -> None:
    """Its git waits for a pipe until this test has something to say; others are answered meanwhile."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    config = tmp_path / ".git" / "config"
    kept = config.rename(tmp_path / "kept")
    os.mkfifo(config)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(door.submit, "true", workdir=str(tmp_path))
        pipe = os.open(config, os.O_WRONLY)  # returns once git reads
        quick = [door.submit("true") for _ in range(5)]
        assert not slow.done()
        text = kept.read_bytes()
        kept.replace(config)  # git asks more than once
        os.write(pipe, text)
        os.close(pipe)
        late = slow.result(timeout=20)
    assert [int(job) for job in [*quick, late]] == list(range(int(quick[0]), int(late) + 1))
    assert door.ask("GET", f"/api/v1/jobs/{late}").json["fingerprint"]["kind"] == "git"


def test_of_many_at_once_each_is_told_of_his_own(door: Door) -> None:
    taken = door.ask("POST", "/api/v1/jobs", {"argv": ["true"]}, headers={"Idempotency-Key": "taken"}).json["id"]

    def ask(number: int) -> Any:
        body: dict[str, Any] = {"argv": ["true"], "name": f"n{number}", "project": "many"}
        headers = {}
        match number % 4:
            case 1:
                body["shares"] = "x"
            case 2:
                headers["Idempotency-Key"] = "taken"
            case 3:
                body["after"] = ["99999"]
        return door.ask("POST", "/api/v1/jobs", body, headers=headers)

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(64)))
    for number, answer in enumerate(answers):
        wanted = {0: (201, None), 1: (422, "shares"), 2: (409, None), 3: (422, "after")}[number % 4]
        assert (answer.status, answer.json.get("field")) == wanted, answer.body
        if answer.status == 201:
            assert answer.json["name"] == f"n{number}"
            assert answer.headers["location"] == f"/api/v1/jobs/{answer.json['id']}"
        else:
            assert answer.headers["content-type"] == "application/problem+json"
    made = {answer.json["id"] for answer in answers if answer.status == 201}
    listed = door.ask("GET", "/api/v1/jobs?all=1&project=many&limit=100").json["items"]
    assert {job["id"] for job in listed} == made
    assert len(made) == 16
    assert taken not in made


def ask(layer: Direct, method: str, path: str) -> tuple[int, dict[bytes, bytes], Any]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b"", "root_path": ""}
    asyncio.run(layer(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]), json.loads(sent[1]["body"])


def test_past_the_framework_an_error_is_the_same_problem() -> None:
    async def busy(request: Request) -> Response:
        raise Conflict("it is busy", code="Busy")

    async def broken(request: Request) -> Response:
        raise ZeroDivisionError

    layer = Direct(FastAPI(), {("POST", "/busy"): busy, ("POST", "/broken"): broken})
    status, headers, body = ask(layer, "POST", "/busy")
    assert (status, headers[b"content-type"]) == (409, b"application/problem+json")
    assert (body["code"], body["detail"]) == ("Busy", "it is busy")
    status, _, body = ask(layer, "POST", "/broken")
    assert (status, body["code"]) == (500, "HouseFault")
    assert ask(layer, "GET", "/busy")[0] == 404  # the app's answer: another method is another request
