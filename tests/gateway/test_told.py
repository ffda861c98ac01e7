"""What is told of a request: its line, its span, its part in the metrics; and what is kept of these for how long."""

from __future__ import annotations

import gzip
import json
import os
import resource
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tenure.gateway import otel
from tenure.gateway.journal import Journal
from tenure.gateway.rotation import DAY_S, Rotated
from tenure.gateway.spans import exported, span_of

from .conftest import Home, eventually, lines

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def told(home: Home, **wanted: object) -> dict[str, Any]:
    """The line of the last request that is so."""

    def look() -> list[dict[str, Any]]:
        every = lines(home.path / "gateway" / "requests.jsonl")
        return [line for line in every if all(line.get(key) == value for key, value in wanted.items())]

    return dict(eventually(look)[-1])


def spans(home: Home, trace: str) -> list[dict[str, Any]]:
    found = []
    for line in lines(home.path / "gateway" / "spans.jsonl"):
        (resource,) = line["resourceSpans"]
        (scope,) = resource["scopeSpans"]
        found += [span for span in scope["spans"] if span["traceId"] == trace]
    return found


def server_pid(home: Home) -> int:
    return int(home.chat("told").json["pid"])


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def test_a_request_that_wakes_and_waits_and_streams_is_told_whole(home: Home, tmp_path: Path) -> None:
    home.declare("told", "--load", "0.4", "--seen", str(tmp_path / "seen"), adapters=[{"name": "told-sql"}])
    home.reload()
    began = time.time()
    sent = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=b"}
    answer = home.chat("told-sql", stream=True, headers=sent)
    run = home.model("told")["run_id"]
    line = told(home, model="told", trace=TRACE)
    assert (line["adapter"], line["who"], line["held"], line["woke"], line["streamed"]) == (
        "told-sql",
        None,
        True,
        True,
        True,
    )
    assert (line["status"], line["run"], line["left"]) == (200, run, False)
    assert 0.3 < line["held_s"] <= line["first_byte_s"] <= line["seconds"] < 20
    assert abs(line["at"] - time.time()) < 10
    assert list(line)[:2] == ["at", "model"]
    (span,) = eventually(lambda: spans(home, TRACE))
    said = attributes(span)
    assert (span["name"], span["kind"], span["parentSpanId"]) == ("chat told", 2, PARENT)
    assert (said[otel.REQUEST_MODEL], said[otel.RUN], said[otel.JOB]) == ("told-sql", run, run.partition(".")[0])
    assert (said[otel.WOKE], said[otel.HELD], said[otel.REQUEST_STREAM], said[otel.ADAPTER]) == (
        True,
        True,
        True,
        "told-sql",
    )
    assert said[otel.STATUS] == "200"
    environment = Path(f"/proc/{server_pid(home)}/environ").read_bytes().split(b"\0")
    trace = next(one for one in environment if one.startswith(b"TRACEPARENT=")).decode().split("-")
    assert span["links"] == [{"traceId": trace[1], "spanId": trace[2]}], "the run that answered is a trace of its own"
    assert said[otel.FIRST_CHUNK] == pytest.approx(line["first_byte_s"], abs=1e-5)
    assert began * 1e9 - 1e7 < int(span["startTimeUnixNano"]) < int(span["endTimeUnixNano"]) < time.time() * 1e9
    upstream = next(one["headers"] for one in lines(tmp_path / "seen") if one["path"] == "/v1/chat/completions")
    assert upstream["traceparent"] == f"00-{TRACE}-{span['spanId']}-01"
    assert upstream["tracestate"] == "a=b"
    assert answer.status == 200

    home.chat("told")  # it is up: neither held nor what woke it
    line = told(home, model="told", adapter=None)
    assert (line["held"], line["woke"], line["held_s"]) == (False, False, 0)
    assert (line["prompt_tokens"], line["completion_tokens"]) == (3, 4)
    own = line["trace"]
    assert own != TRACE
    (span,) = eventually(lambda: spans(home, own))
    assert "parentSpanId" not in span
    assert (attributes(span)[otel.INPUT_TOKENS], attributes(span)[otel.OUTPUT_TOKENS]) == ("3", "4")


def test_what_a_caller_does_not_want_recorded_is_not(home: Home, tmp_path: Path) -> None:
    home.declare("told", "--seen", str(tmp_path / "seen"))
    home.reload()
    trace = TRACE[::-1]
    home.chat("told", headers={"traceparent": f"00-{trace}-{PARENT}-00"})
    assert told(home, trace=trace)["status"] == 200
    assert spans(home, trace) == []
    upstream = next(one["headers"] for one in lines(tmp_path / "seen") if one["path"] == "/v1/chat/completions")
    assert upstream["traceparent"].startswith(f"00-{trace}-")
    assert upstream["traceparent"].endswith("-00")


@pytest.mark.parametrize("given", [b"", b"00-xyz", b"00-" + b"0" * 32 + b"-" + b"1" * 16 + b"-01", b"01-" + b"a" * 32 + b"-" + b"1" * 16 + b"-01"])  # fmt: skip
def test_a_trace_that_is_none_begins_anew(given: bytes) -> None:
    span = span_of({b"traceparent": given})
    assert (len(span.trace), len(span.id), span.parent, span.sampled) == (32, 16, "", True)


def test_a_refusal_is_a_line_and_a_span_with_its_error(home: Home) -> None:
    home.declare("told", gpuMemory="64Gi")
    home.reload()
    assert home.chat("told").status == 503
    line = told(home, model="told", status=503)
    assert (line["code"], line["run"], line["first_byte_s"]) == ("model_not_placed", None, None)
    (span,) = eventually(lambda: spans(home, line["trace"]))
    assert span["status"] == {"code": 2, "message": "model_not_placed"}
    assert attributes(span)[otel.ERROR] == "model_not_placed"


def test_who_leaves_while_it_is_held_has_a_line_with_its_wait(home: Home) -> None:
    home.declare("told", "--load", "3600")
    home.reload()
    connection = home.connect()
    connection.request("POST", "/v1/chat/completions", b'{"model":"told"}', {"Content-Type": "application/json"})
    eventually(lambda: home.model("told")["held"] == 1)
    time.sleep(0.3)
    connection.close()
    line = told(home, model="told", left=True)
    assert (line["status"], line["held"], line["run"], line["first_byte_s"]) == (499, True, None, None)
    assert 0.3 < line["held_s"] <= line["seconds"]
    (span,) = eventually(lambda: spans(home, line["trace"]))
    assert attributes(span)[otel.LEFT] is True
    assert "status" not in span, "that is no error of ours"


def test_metrics_speak_of_models_and_never_of_what_a_user_wrote(home: Home) -> None:
    home.declare("counted", "--load", "1", aliases=["other-name"])
    home.reload()
    home.chat("other-name")
    home.chat("counted", stream=True)
    home.chat('no"such')

    def look() -> dict[str, float] | None:
        text = home.ask("GET", "/metrics").body.decode()
        assert "no" + '"' not in text.replace("no_", "")
        assert "other-name" not in text
        families = list(text_string_to_metric_families(text))
        assert all(family.name.startswith("tenure_gateway_") for family in families)
        assert all(family.documentation for family in families)
        values = {
            sample.name: sample.value
            for family in families
            for sample in family.samples
            if sample.labels.get("model") == "counted" and "le" not in sample.labels
        }
        return values if values.get("tenure_gateway_requests_total") == 2 else None

    values = eventually(look)
    for name in ("request_duration", "time_to_first_token", "overhead", "queue_time"):
        assert values[f"tenure_gateway_{name}_seconds_count"] == 2
    assert values["tenure_gateway_queue_time_seconds_sum"] > 0.8
    assert 0 < values["tenure_gateway_overhead_seconds_sum"] < 0.8, "the wait is no part of it"
    assert values["tenure_gateway_wakes_total"] == 1
    assert values["tenure_gateway_in_flight_requests"] == values["tenure_gateway_held_requests"] == 0


# ------------------------------------------------------------------ what is kept


def test_lines_are_set_aside_by_size_packed_after_a_day_and_dropped_after_eight(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    file = Rotated(path, part=1000)
    for number in range(30):
        file.write([b'{"at":%.3f,"model":"a","n":%d}\n' % (time.time(), number)] * 2)
    parts = sorted(tmp_path.glob("requests.*.jsonl"))
    assert len(parts) >= 2
    every = [json.loads(line)["n"] for part in [*parts, path] for line in part.read_text().splitlines()]
    assert every == [n for n in range(30) for _ in range(2)]
    assert all(part.stat().st_mode & 0o077 == 0 for part in [*parts, path])
    now = time.time()
    os.utime(parts[0], (now - 7.9 * DAY_S,) * 2)
    before = parts[0].read_bytes()
    file.tidy()
    packed = parts[0].with_name(parts[0].name + ".gz")
    assert gzip.decompress(packed.read_bytes()) == before
    assert abs(packed.stat().st_mtime - (now - 7.9 * DAY_S)) < 1, "it is as old as its last line"
    assert packed.stat().st_mode & 0o077 == 0
    assert parts[1].exists(), "a part of today is read as it is"
    file.tidy(now + 0.2 * DAY_S)
    assert not packed.exists()
    assert path.exists()
    file.close()


def test_more_than_there_is_room_for_drops_the_oldest(tmp_path: Path) -> None:
    file = Rotated(tmp_path / "requests.jsonl", part=1000, total=5000)
    for number in range(400):
        file.write([b'{"at":%.3f,"model":"a","n":%d}\n' % (time.time(), number)])
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 7000
    assert b'"n":399' in (tmp_path / "requests.jsonl").read_bytes()
    file.close()


def test_a_quiet_file_is_set_aside_by_day_and_a_torn_line_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b'{"at":%.3f,"model":"a"}\n{"at":1' % (time.time() - 2 * DAY_S))
    file = Rotated(path)
    file.write([b'{"at":5}\n'])
    (part,) = tmp_path.glob("requests.*.jsonl")
    assert part.read_bytes().endswith(b'{"at":1\n')
    assert path.read_bytes() == b'{"at":5}\n'
    file.close()


def test_a_file_that_somebody_removed_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "gateway" / "requests.jsonl"
    file = Rotated(path, part=100)
    for size in (10, 200):  # before it would be set aside, and when it is to be
        file.write([b'{"at":1}' + b" " * size + b"\n"])
        path.unlink()
        file.write([b'{"at":2}\n'])
        assert path.read_bytes() == b'{"at":2}\n'
    file.close()


def test_where_no_file_can_be_made_no_other_is_closed_for_it(tmp_path: Path) -> None:
    """A descriptor that is closed twice is by the second time somebody else's: a client's connection."""
    folder = tmp_path / "gateway"
    file = Rotated(folder / "requests.jsonl", part=10)
    file.write([b'{"at":1,"model":"a"}\n'])
    shutil.rmtree(folder)
    folder.write_text("in the way")
    others = []
    for _ in range(3):
        file.write([b'{"at":2}\n'])
        others.append(os.open(os.devnull, os.O_RDONLY))
    for other in others:
        os.close(other)
    folder.unlink()
    file.write([b'{"at":3}\n'])
    assert (folder / "requests.jsonl").read_bytes() == b'{"at":3}\n'
    file.close()


def test_a_line_that_a_full_disk_has_cut_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    file = Rotated(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, limits[1]))  # as a full disk, for this process alone
    try:
        file.write([b'{"at":1}\n'])
        file.write([b'{"at":2}\n'])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    file.write([b'{"at":3}\n'])
    assert path.read_bytes().splitlines()[-1] == b'{"at":3}'
    file.close()


def test_a_journal_without_a_loop_writes_at_once_and_one_with_it_a_turn_later(tmp_path: Path) -> None:
    import asyncio

    journal = Journal(tmp_path / "requests.jsonl")
    journal.write(model="a")
    assert len(lines(journal.path)) == 1

    async def three() -> None:
        span = span_of({})
        span.end("chat a", {"x": 1, "y": None})
        for _ in range(3):
            journal.write(model="a", span=span)
        assert len(lines(journal.path)) == 1
        await asyncio.sleep(0)
        assert len(lines(journal.path)) == 4

    asyncio.run(three())
    assert len(lines(tmp_path / "spans.jsonl")) == 1, "one export for all that ended together"
    journal.close()


def test_what_is_exported_has_the_types_of_otlp() -> None:
    """64-bit integers are strings in its JSON, ids hex, and each value says its type."""
    span = span_of({b"traceparent": f"00-{TRACE}-{PARENT}-01".encode()})
    span.link = (TRACE[::-1], PARENT[::-1])
    span.end("chat a", {"flag": True, "count": 3, "ratio": 0.5, "text": "é", "none": None}, error="boom")
    (one,) = json.loads(exported([span]))["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert one["attributes"] == [
        {"key": "flag", "value": {"boolValue": True}},
        {"key": "count", "value": {"intValue": "3"}},
        {"key": "ratio", "value": {"doubleValue": 0.5}},
        {"key": "text", "value": {"stringValue": "é"}},
    ]
    assert (one["traceId"], one["parentSpanId"], len(one["spanId"])) == (TRACE, PARENT, 16)
    assert isinstance(one["startTimeUnixNano"], str)
    assert one["status"] == {"code": 2, "message": "boom"}
    assert one["links"] == [{"traceId": TRACE[::-1], "spanId": PARENT[::-1]}]
