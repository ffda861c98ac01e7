"""Which model a request is for: what stands in its body, whatever its size."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tenure.gateway.naming import LARGE_JSON, Names
from tenure.gateway.request import Request

ROW: dict[str, Any] = {
    "name": "assistant",
    "aliases": ["default"],
    "adapters": ["assistant-sql"],
    "inference_paths": ["/v1/chat/completions"],
    "state": "asleep",
}


async def nothing(_: Any) -> None:
    raise AssertionError("nothing is sent")


def identified(body: bytes) -> Request:
    names = Names()
    names.heard([ROW])
    request = Request(1, {}, nothing, "POST", "/v1/chat/completions", 0.0, body=body)
    asyncio.run(names.identify(request, {b"content-type": b"application/json"}))
    return request


@pytest.mark.parametrize("size", [10, LARGE_JSON])
@pytest.mark.parametrize("name", ["assistant", "default", "assistant-sql"])
def test_an_alias_is_rewritten_and_nothing_else_changes(name: str, size: int) -> None:
    said = {
        "stream": True,
        "model": name,
        "messages": [{"role": "user", "content": "ö\ud83d" + "x" * size}],
        "odd": 1.5,
    }
    request = identified(json.dumps(said).encode())
    assert (request.model, request.asked_as, request.stream, request.inference) == ("assistant", name, True, True)
    sent = json.loads(request.body.decode("utf-8", "surrogatepass"))
    assert sent == said | {"model": "assistant" if name == "default" else name}
    assert list(sent) == list(said)
