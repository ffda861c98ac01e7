"""Every body and every query of the API with values that nobody means: a refusal that says so, and never a bug of ours."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from .conftest import Door

ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 2**63, 10**400, "", "x", "-5", "1e400", "NaN", "\0", "\ud800", "x" * 20_000),
    *(
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        [],
        [None],
        [1],
        ["x"],
        [[]],
        {},
        {"a": None},
        {"a": 1},
        {"a": {"b": 1}},
    ),
)
QUERIES = ("-1", "0", "x", "", "nan", "-inf", "1e9", "99999999999999999999999", "%00", "%ff", "true", "a,b", "@")
LEFT_OUT = ("/api/v1/jobs", "/api/v1/daemon:stop")  # the first has tests of its own, the second would end the door
STAYS = ("watch", "follow", "timeout", "across")  # with these an answer may rightly take its time


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        place = path.replace("{name}", "x").replace("{other}", "1.1").replace("{id}", "1")
        for method, operation in methods.items():
            if path not in LEFT_OUT:
                yield method.upper(), place, operation


def bodies(document: dict[str, Any], operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each property with each odd value, beside what else the body must have."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return
    schema = document["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
    for name in schema.get("properties", {}):
        for value in ODD:
            yield {other: "x" for other in schema.get("required", ())} | {name: value}


def test_no_body_and_no_query_is_a_bug_of_ours(
    open_door: Callable[..., AbstractContextManager[Door]], tmp_path: Path
) -> None:
    asked, bugs = 0, []
    with open_door(tmp_path / "home") as door:
        assert door.ask("POST", "/api/v1/jobs", {"argv": ["true"], "cwd": "/", "hold": True}).status == 201
        document = door.ask("GET", "/openapi.json").json
        for method, path, operation in operations(document):
            for body in bodies(document, operation):
                asked += 1
                if door.ask(method, path, body).status >= 500:
                    bugs.append((method, path, ascii(body)[:200]))
            for parameter in operation.get("parameters", ()):
                if method != "GET" or parameter["in"] != "query" or parameter["name"] in STAYS:
                    continue
                for value in QUERIES:
                    asked += 1
                    text = value if "%" in value else urllib.parse.quote(value)
                    if door.ask(method, f"{path}?{parameter['name']}={text}").status >= 500:
                        bugs.append((method, path, f"{parameter['name']}={value}"))
    assert bugs == []
    assert asked > 1000, "the document no longer says what there is to ask"


def test_a_name_that_is_none_is_refused_in_our_own_words(
    open_door: Callable[..., AbstractContextManager[Door]], tmp_path: Path
) -> None:
    with open_door(tmp_path / "home") as door:
        for name in ("", "a b", "../x", "Ü", "x" * 64, ".x", "x\n"):
            answer = door.ask("POST", "/api/v1/tokens", {"name": name})
            assert (answer.status, answer.json["field"]) == (422, "name"), name
            assert "small letters, digits" in answer.json["detail"]
            assert "Value error" not in answer.json["detail"]
        schema = door.ask("GET", "/openapi.json").json["components"]["schemas"]["NewToken"]["properties"]["name"]
        assert schema["pattern"].startswith("^[a-z0-9]")
