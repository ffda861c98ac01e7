"""The gateway beside a platform that does not answer, or answers badly: what it knows is kept, and said when it can be."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure.gateway import platform, router
from tenure.gateway.journal import Journal
from tenure.gateway.platform import Platform
from tenure.gateway.policy import Desk
from tenure.gateway.protocol import ARRIVED
from tenure.gateway.reporting import Report
from tenure.gateway.request import Request
from tenure.gateway.router import Gateway
from tenure.gateway.upstream import Upstream
from tenure.gateway.uses import Uses

Answer = Callable[[str, Any], tuple[int, Any]]
"""Of a path and what was sent there: the status and the body."""


async def _listen(path: Path, answer: Answer) -> asyncio.Server:
    """As much of a platform as the gateway asks: one request after the other on each connection."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    (int(line[15:]) for line in head.split(b"\r\n") if line[:15].lower() == b"content-length:"), 0
                )
                sent = json.loads(await reader.readexactly(length)) if length else None
                status, said = answer(head.split(b" ")[1].decode(), sent)
                body = json.dumps(said).encode()
                kind = b"content-type: application/json\r\n"
                writer.write(b"HTTP/1.1 %d X\r\n%bcontent-length: %d\r\n\r\n%b" % (status, kind, len(body), body))
        except asyncio.IncompleteReadError:
            writer.close()

    return await asyncio.start_unix_server(talk, path)


def test_before_the_first_table_a_request_hears_that_the_platform_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "KNOWN_S", 0.05)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def one() -> None:
        journal, uses = Journal(tmp_path / "requests.jsonl"), Uses(tmp_path / "use.json")
        gateway = Gateway(desk=Desk(), journal=journal, uses=uses, token_needed=False, silence_s=60)
        gateway.opened(Platform(tmp_path / "nobody.sock", gateway.heard), Upstream())
        headers = [(b"host", b"localhost")]
        scope = {"type": "http", "method": "GET", "path": "/v1/models", "http_version": "1.1", "headers": headers}
        await gateway({**scope, ARRIVED: time.monotonic()}, receive, send)
        await gateway.closed()

    asyncio.run(one())
    assert sent[0]["status"] == 503
    assert json.loads(sent[1]["body"])["error"]["code"] == "platform_away"
    assert (b"retry-after", b"2") in sent[0]["headers"]


def test_what_the_platform_did_not_take_is_told_again(tmp_path: Path) -> None:
    told: list[Any] = []

    def answer(path: str, body: Any) -> tuple[int, Any]:
        if not path.endswith("models:report"):
            return 503, {}
        told.append(body)
        return (500, {"detail": "not now"}) if len(told) == 1 else (200, {})

    async def one() -> None:
        async def send(_: Any) -> None: ...

        server = await _listen(tmp_path / "api.sock", answer)
        line = Platform(tmp_path / "api.sock", lambda rows: None)
        report = Report(Desk())
        asked = Request(1, {}, send, "POST", "/v1/x", 0.0, model="a", inference=True, keep_alive_s=60, sent_at=1.0)
        report.spoke(asked)
        report.held(asked)
        task = asyncio.ensure_future(report.run(line, ["a"]))
        while len(told) < 2:
            await asyncio.sleep(0.01)  # nobody is told that somebody was told
        task.cancel()
        await line.close()
        server.close()

    asyncio.run(asyncio.wait_for(one(), 20))
    for body in told[:2]:
        assert (body["models"]["a"]["active"], body["models"]["a"]["keep_alive_s"]) == (True, 60)
        assert [held["request"] for held in body["held"]] == [1]


def test_what_was_asked_of_a_model_that_is_gone_is_not_said_of_the_next_one_of_its_name(tmp_path: Path) -> None:
    told: list[Any] = []

    def answer(path: str, body: Any) -> tuple[int, Any]:
        if path.endswith("models:report"):
            told.append(body)
        return 200, {}

    async def one() -> None:
        async def send(_: Any) -> None: ...

        server = await _listen(tmp_path / "api.sock", answer)
        line, report = Platform(tmp_path / "api.sock", lambda rows: None), Report(Desk())
        for name in "ab":
            report.spoke(
                Request(1, {}, send, "POST", "/v1/x", 0.0, model=name, inference=True, keep_alive_s=60, sent_at=1.0)
            )
        report.heard([{"name": "b", "state": "ready"}])
        report.heard([{"name": "a", "state": "asleep"}, {"name": "b", "state": "ready"}])
        task = asyncio.ensure_future(report.run(line, ["a", "b"]))
        while not told:
            await asyncio.sleep(0.01)
        task.cancel()
        await line.close()
        server.close()

    asyncio.run(asyncio.wait_for(one(), 20))
    said = told[0]["models"]
    assert (said["a"]["active"], "keep_alive_s" in said["a"]) == (False, False)
    assert (said["b"]["active"], said["b"]["keep_alive_s"]) == (True, 60)


def test_a_table_that_cannot_be_taken_in_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of ours is told in the log, and the gateway does not stay deaf for it."""
    monkeypatch.setattr(platform, "FAULT_S", 0.01)
    tables = [{"version": 3, "models": [{"is": "none"}]}, {"version": 3, "models": []}]

    async def one() -> list[Any]:
        heard: list[Any] = []

        def take(rows: list[dict[str, Any]]) -> None:
            heard.append([row["name"] for row in rows])

        server = await _listen(
            tmp_path / "api.sock", lambda path, body: (200, tables[0] if len(tables) == 1 else tables.pop(0))
        )
        line = Platform(tmp_path / "api.sock", take)
        await line.known.wait()
        await line.close()
        server.close()
        return heard

    assert asyncio.run(asyncio.wait_for(one(), 20)) == [[]]
    assert "could not be taken in" in caplog.text
