"""Requests wake models, are held, and are answered; what is no inference wakes nobody."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest

from .conftest import Home, eventually, lines


def test_twenty_at_once_start_one_process_and_get_twenty_answers(home: Home, tmp_path: Path) -> None:
    home.declare("twenty", "--load", "0.5", "--starts", str(tmp_path / "starts"))
    home.reload()
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: home.chat("twenty"), range(20)))
    assert [a.status for a in answers] == [200] * 20
    pids = (tmp_path / "starts").read_text().split()
    assert len(pids) == 1
    assert {str(a.json["pid"]) for a in answers} == set(pids)
    (row,) = json.loads(home.tenure("models", "-o", "json"))
    assert (row["state"], row["wakes"], row["run_id"]) == ("ready", 1, answers[0].headers["x-tenure-run"])
    woken = [e for e in home.events("ModelWoken") if e["data"]["model"] == "twenty"]
    assert [e["data"]["cause"] for e in woken] == ["POST /v1/chat/completions"]
    held = eventually(lambda: len([e for e in home.events("ModelHeld") if e["data"]["model"] == "twenty"]) == 20)
    assert held
    steps = eventually(lambda: (w := home.model("twenty")["last_wake"]).get("first_token_at") and w)
    order = [
        steps[step] for step in ("asked_at", "admitted_at", "started_at", "listening_at", "ready_at", "first_token_at")
    ]
    assert order == sorted(order)


def test_listing_health_and_scrapes_never_wake(home: Home) -> None:
    home.declare("small", aliases=["default"], adapters=[{"name": "small-sql"}])
    home.reload()
    listed = home.ask("GET", "/v1/models").json
    assert [(m["id"], m["object"], m.get("parent")) for m in listed["data"]] == [("small", "model", None), ("small-sql", "model", "small")]  # fmt: skip
    assert home.ask("GET", "/v1/models/default").json["id"] == "small"
    for path in ("/health", "/metrics"):
        assert home.ask("GET", path).status == 200
    assert home.ask("GET", "/favicon.ico").status == 404
    refused = home.ask("GET", "/props", headers={"X-Tenure-Model": "small"})
    assert (refused.status, refused.error["code"]) == (503, "model_asleep")
    row = home.model("small")
    assert (row["state"], row["wakes"], row["last_inference_at"]) == ("asleep", 0, None)


def test_only_inference_resets_the_idle_clock(home: Home) -> None:
    home.declare("small", idleAfter="4s")
    home.reload()
    home.chat("small")
    row = eventually(lambda: (r := home.model("small"))["last_inference_at"] and r["in_flight"] == r["held"] == 0 and r)
    asked = row["last_inference_at"]  # its end is known: nothing of it moves the clock any more
    for _ in range(8):
        assert home.ask("GET", "/pid", headers={"X-Tenure-Model": "small"}).status in (200, 503)
        home.ask("GET", "/v1/models")
        time.sleep(0.1)
    assert home.model("small")["last_inference_at"] == asked
    row = home.until("small", "asleep")
    assert "no inference for 4 s" in row["message"]


def test_the_openai_client_streaming_and_not(home: Home) -> None:
    home.declare("small", aliases=["default"])
    home.reload()
    with openai.OpenAI(base_url=home.url, api_key="sk-anything") as client:
        assert [model.id for model in client.models.list()] == ["small"]
        answer = client.chat.completions.create(model="default", messages=[{"role": "user", "content": "?"}])
        assert answer.model == "small"  # the alias was rewritten, and the length with it
        assert (answer.choices[0].message.content or "").startswith("Paris")
        with client.chat.completions.create(model="small", messages=[], stream=True) as stream:
            words = [chunk.choices[0].delta.content for chunk in stream]
        assert words == [f"word{n} " for n in range(5)]
        assert client.embeddings.create(model="small", input="x", encoding_format="float").data[0].embedding == [
            0.25,
            0.5,
        ]
        with pytest.raises(openai.NotFoundError) as missing:
            client.chat.completions.create(model="smal", messages=[])
        assert missing.value.code == "model_not_found"


def test_a_held_stream_hears_pings_and_then_its_words(home: Home) -> None:
    home.declare("small", "--load", "1.6")
    home.reload()
    answer = home.chat("small", stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["cache-control"] == "no-cache"
    first, *rest = answer.body.split(b"\n\n")
    assert first == b": ping"
    assert json.loads(rest[-3].removeprefix(b"data: "))["choices"][0]["delta"]["content"] == "word4 "
    assert rest[-2] == b"data: [DONE]"


def test_who_does_not_want_to_wait_is_told_at_once(home: Home) -> None:
    home.declare("small", "--load", "0.4")
    home.reload()
    refused = home.chat("small", headers={"X-Tenure-Wait": "0"})
    assert (refused.status, refused.error["code"], refused.error["type"]) == (503, "model_not_ready", "server_error")
    assert int(refused.headers["retry-after"]) >= 1
    home.until("small", "ready")
    home.hears("small", "ready")
    assert home.chat("small", headers={"X-Tenure-Wait": "0"}).status == 200


def test_who_does_not_wait_for_a_turn_hears_what_it_waits_for(home: Home) -> None:
    job = home.tenure("submit", "--priority", "training", "--shares", "8", "--gpu-memory", "8Gi", "--", "sleep", "60")
    home.declare("small")
    home.reload()
    home.tenure("models", "wake", "small")
    home.until("small", "queued")
    refused = eventually(lambda: (a := home.chat("small", headers={"X-Tenure-Wait": "0"})) and "WaitingForQuota" in a.error["message"] and a)  # fmt: skip
    assert (refused.status, refused.error["code"]) == (503, "model_not_ready")
    assert "1 more needed" in refused.error["message"]
    assert int(refused.headers["retry-after"]) >= 1
    home.tenure("cancel", job.strip())
    home.until("small", "ready")


def test_what_cannot_be_placed_says_why(home: Home) -> None:
    home.declare("huge", gpuMemory="64Gi")
    home.reload()
    refused = home.chat("huge")
    assert (refused.status, refused.error["code"]) == (503, "model_not_placed")
    assert "ExceedsMaxQuota" in refused.error["message"]
    assert "retry-after" in refused.headers


@pytest.mark.parametrize("when", ["asleep", "answering"])
def test_a_client_that_leaves_frees_its_slot_and_the_model_stays(home: Home, tmp_path: Path, when: str) -> None:
    seen, loaded = tmp_path / "seen", tmp_path / "loaded"
    home.declare("small", "--load-until", str(loaded), "--chunk-delay", "0.1", "--seen", str(seen))
    home.reload()
    if when == "answering":
        loaded.touch()
        home.chat("small")
    connection = home.connect()
    body = json.dumps({"model": "small", "stream": True, "chunks": 1000})
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    if when == "answering":
        answer = connection.getresponse()
        assert answer.readline().startswith(b"data: ")
        eventually(lambda: home.model("small")["in_flight"] == 1)
        answer.close()
    else:
        eventually(lambda: home.model("small")["held"] == 1)
    assert isinstance(connection.sock, socket.socket | None)
    connection.close()
    if when == "answering":  # within a second, which a busy machine makes longer; it would go on for 100
        eventually(lambda: any("left" in line for line in lines(seen)), timeout=6)
    row = eventually(lambda: (r := home.model("small"))["in_flight"] == r["held"] == 0 and r)
    assert row["state"] == ("starting" if when == "asleep" else "ready")
    loaded.touch()
    assert home.chat("small").status == 200
    if when == "asleep":
        assert sum("size" in line for line in lines(seen)) == 1, "its request was never sent"


def test_a_model_that_comes_back_has_a_first_token_of_its_own(home: Home, tmp_path: Path) -> None:
    home.declare("small")
    home.reload()
    home.chat("small")
    first = eventually(lambda: home.model("small")["last_wake"].get("first_token_at"))
    home.tenure("run", "--priority", "training", "--shares", "8", "--gpu-memory", "12Gi", "--", "true")
    row = home.until("small", "ready")
    assert row["run_id"].endswith(".2")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(home.chat, "small", until=str(tmp_path / "thought"))
        eventually(lambda: home.model("small")["in_flight"] == 1)  # the gateway has spoken of it since
        assert "first_token_at" not in home.model("small")["last_wake"]
        (tmp_path / "thought").touch()
        assert answer.result().status == 200
    again = eventually(lambda: home.model("small")["last_wake"].get("first_token_at"))
    assert again > row["last_wake"]["ready_at"] > first


def test_a_preempted_model_comes_back_and_the_held_question_is_answered(home: Home, tmp_path: Path) -> None:
    home.declare("small")
    home.reload()
    home.chat("small")
    first = home.model("small")["run_id"]
    job = home.submit("sh", "-c", f"while [ ! -e '{tmp_path}/trained' ]; do sleep 0.1; done")
    row = home.until("small", "queued")
    assert row["job_id"] == first.partition(".")[0]
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(home.chat, "small")
        eventually(lambda: home.model("small")["held"] == 1)
        (tmp_path / "trained").touch()
        assert answer.result().status == 200
    assert home.model("small")["run_id"] == f"{row['job_id']}.2"
    assert json.loads(home.tenure("show", job, "-o", "json"))["outcome"] == "completed"


def test_two_models_on_a_place_for_one_take_turns(home: Home, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    for name in ("one", "two"):
        home.declare(name, "--starts", str(starts))
    home.reload()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda n: home.chat(("one", "two")[n % 2], timeout=60), range(8)))
    assert [a.status for a in answers] == [200] * 8
    assert [a.json["model"] for a in answers] == ["one", "two"] * 4
    assert 2 <= len(starts.read_text().split()) <= 7
