"""The cold-start study as its users run it: a caller at a real door, with model servers behind it whose steps are known."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tenure.manifests.policy import read_policy
from tenure.sdk.record import read_record
from tenure_studies.cold_start.caller import Caller, NotAnswered
from tenure_studies.cold_start.phases import PHASES
from tenure_studies.cold_start.study import cold_start, summary

from .conftest import as_attempt

TENURE = str(Path(sys.executable).with_name("tenure"))
STUDY = [sys.executable, "-m", "tenure_studies.cold_start", "--pause", "0", "--tokens", "2"]
SERVER = [sys.executable, "-P", "-m", "tenure.testing.model_server", "--port", "{port}"]
LOAD_S, COMPILE_S = 0.4, 0.6


def environment(**more: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("TENURE_", "OPENAI_"))}
    return {**kept, **more}


@dataclass
class Door:
    home: Path
    url: str


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A platform with four models: two that stay for an hour unless they may go, and two that tell nothing and go by themselves."""
    home = tmp_path_factory.mktemp("cold") / "home"
    env = environment(TENURE_HOME=str(home))

    def tenure(*words: str) -> str:
        return subprocess.run([TENURE, *words], env=env, capture_output=True, text=True, timeout=60, check=True).stdout

    tenure("up", "-d", "--card", "8x16Gi")
    knobs = ["--load", str(LOAD_S), "--compile", str(COMPILE_S)]
    arms = (
        ("kept", [], True, "1h"),
        ("fresh", [], False, "1h"),
        ("mute", ["--no-phases"], True, "1s"),
        ("dumb", ["--no-phases"], False, "1s"),
    )
    for name, more, kept, idle in arms:
        spec = {
            "command": [*SERVER, *knobs, *more], "queueName": "large-model", "priorityClassName": "on-demand", "shares": 1,
            "gpuMemory": "1Gi", "idleAfter": idle, "stopTimeout": "5s", "keepCaches": kept,
        }  # fmt: skip
        document = {"apiVersion": "tenure.dev/v1", "kind": "Model", "metadata": {"name": name}, "spec": spec}
        (home / "policy" / f"{name}.json").write_text(json.dumps(document))
    try:
        tenure("policy", "reload")
        yield Door(home, tenure("gateway", "url").strip())
    finally:
        tenure("down")


def wakes_of(run: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((run / "artifacts" / "wakes.json").read_text())["wakes"]
    return found


def test_both_arms_phase_by_phase_and_an_interruption(door: Door, tmp_path: Path) -> None:
    study = [*STUDY, "--kept", "kept", "--fresh", "fresh", "--wakes", "2"]
    first, env = as_attempt(tmp_path, 1)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(study, env=environment(OPENAI_BASE_URL=door.url, **env), stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 40
        while "kept/total" not in read_record(first).metrics:
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.3)  # somewhere in the next wake: nowhere in particular
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    assert read_record(first).outcome == "interrupted"

    second, env = as_attempt(tmp_path, 2)
    done = subprocess.run(
        study, env=environment(OPENAI_BASE_URL=door.url, **env), capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    record = read_record(second)
    assert record.outcome == "completed"
    assert record.resumed_from is not None
    wakes = wakes_of(second)
    assert sorted((wake["arm"], wake["number"]) for wake in wakes) == [("fresh", 1), ("fresh", 2), ("kept", 0), ("kept", 1), ("kept", 2)]  # fmt: skip
    assert len({wake["said"]["pid"] for wake in wakes}) == 5, "each wake was a process of its own"
    for wake in wakes:
        phases = wake["phases"]
        assert wake["discarded"] is None
        assert wake["disbelieved"] == []
        assert None not in phases.values()
        assert sum(phases.values()) == pytest.approx(wake["total_s"], abs=1e-3)
        assert LOAD_S - 0.02 < phases["load"] <= wake["total_s"], (
            "beside it there is little to do, but others may be busy"
        )
        compiled = COMPILE_S if wake["arm"] == "fresh" or wake["number"] == 0 else 0.0
        assert phases["compile"] == pytest.approx(compiled, abs=0.05)
        assert wake["warm_first_token_s"] < wake["total_s"]

    found = record.results
    assert found["measured"] == 5
    assert found["discarded"] == {}
    assert found["servers_tell_phases"] is True
    assert found["kept"]["compile"]["n"] == found["fresh"]["compile"]["n"] == 2
    assert found["kept_first"]["compile"] == pytest.approx(COMPILE_S, abs=0.05)
    apart = found["difference"]["compile"]
    assert COMPILE_S - 0.05 < apart["low"] <= apart["median"] <= apart["high"] < COMPILE_S + 0.05
    late = max(wake["phases"]["load"] for wake in wakes) - LOAD_S
    assert abs(found["difference"]["load"]["median"]) <= late + 0.02
    assert {path.name for path in (second / "artifacts").iterdir()} == {"wakes.json", "wakes.csv", "phases.svg", "table.txt"}  # fmt: skip
    rows = list(csv.DictReader((second / "artifacts" / "wakes.csv").read_text().splitlines()))
    assert [float(row["total_s"]) for row in rows] == pytest.approx([wake["total_s"] for wake in wakes], abs=1e-5)
    picture = ET.parse(second / "artifacts" / "phases.svg").getroot()
    assert len(picture.findall("{*}circle")) == 5
    bars = picture.findall("{*}rect/{*}title")
    assert any((bar.text or "").startswith("compile: 0.6") for bar in bars)
    assert f"| compile | {found['kept']['compile']['p50']:.3f} |" in done.stdout


def test_a_server_that_says_nothing_of_its_start(door: Door, tmp_path: Path) -> None:
    run, env = as_attempt(tmp_path, 1)
    done = subprocess.run(
        [*STUDY, "--kept", "mute", "--fresh", "dumb", "--wakes", "1", "--base-url", door.url.removesuffix("/v1")],
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Not every server told its phases" in done.stdout
    for wake in wakes_of(run):
        assert set(wake["phases"].values()) == {None}
        assert LOAD_S < wake["total_s"] < 60
        assert wake["first_byte_s"] <= wake["total_s"]
    found = read_record(run).results
    assert found["servers_tell_phases"] is False
    assert found["kept"]["load"] is found["kept_first"]["load"] is found["difference"]["load"] is None
    assert found["fresh"]["total"]["n"] == 1


def test_the_two_example_models_differ_in_their_caches_alone() -> None:
    folder = Path(__file__).parents[2] / "examples" / "models" / "cold_start"
    texts = [(name, (folder / name).read_text()) for name in ("kept.yaml", "fresh.yaml")]
    models = read_policy(texts).models
    spec = cold_start.spec.build({})
    kept, fresh = models[spec.kept], models[spec.fresh]
    assert (kept.keep_caches, fresh.keep_caches) == (True, False)
    assert replace(kept, name=fresh.name, keep_caches=False) == fresh
    assert (folder / kept.command[1]).is_file()


# ---------------------------------------------------------------- a door that misbehaves, and clocks that do


class Script(BaseHTTPRequestHandler):
    """A door of a few lines: `answers` says what to do with each chat, `state` what the list says."""

    protocol_version = "HTTP/1.1"
    answers: ClassVar[list[tuple[int, str]]] = []
    asked: ClassVar[list[dict[str, Any]]] = []
    states: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        if self.path.startswith("/v1/models/"):
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            self._say(200, json.dumps({"id": "x", "status": state}))
        else:
            self._say(404, "{}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        self._say(*self.answers.pop(0))

    def _say(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def scripted(states: list[str], *answers: tuple[int, str]) -> Iterator[Caller]:
    Script.answers, Script.states, Script.asked = list(answers), states, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Script)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Caller(f"http://127.0.0.1:{server.server_port}", patience_s=10)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


ROLE = 'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\n\n'
WORD = 'data: {"choices": [{"delta": {"content": "Paris"}}]}\n\n'
END = "data: [DONE]\n\n"


def test_a_token_is_text_and_nothing_else() -> None:
    with scripted(["asleep"], (200, ": ping\n\n" + ROLE + WORD + END), (200, ": ping\n\n" + ROLE + END)) as caller:
        heard = caller.ask("x", "?", tokens=1)
        assert heard.head_s <= heard.first_byte_s <= heard.first_token_s <= heard.end_s
        assert abs(heard.clock_moved_s) < 0.05
        with pytest.raises(NotAnswered, match="without a token"):
            caller.ask("x", "?", tokens=1)


@pytest.mark.parametrize(
    ("answer", "says", "fatal"),
    [
        ((503, '{"error": {"message": "no room"}}'), "503 no room", False),
        ((404, '{"error": {"message": "there is no model"}}'), "404 there is no model", True),
        ((200, ': ping\n\ndata: {"error": {"message": "it died"}}\n\n'), "it died", False),
        ((200, "data: {torn\n\n"), "no JSON", False),
    ],
)
def test_what_is_no_answer_is_told(answer: tuple[int, str], says: str, fatal: bool) -> None:
    with scripted(["asleep"], answer) as caller, pytest.raises(NotAnswered, match=says) as refused:
        caller.ask("x", "?", tokens=1)
    assert refused.value.fatal is fatal


def test_a_server_that_refuses_an_unknown_field_is_asked_without_it() -> None:
    with scripted(["asleep"], (400, '{"error": {"message": "keep_alive?"}}'), (200, WORD + END)) as caller:
        caller.ask("x", "?", tokens=1, leave=True)
        assert [body.get("keep_alive") for body in Script.asked] == [0, None]
        assert not caller.sends_keep_alive


def test_a_model_that_does_not_fall_asleep_is_named() -> None:
    with scripted(["ready"], (200, WORD + END)) as caller, pytest.raises(TimeoutError, match="x is still ready"):
        caller.rest("x", "?", within_s=0.3)


def test_a_model_that_is_awake_is_asked_to_leave_and_waited_for() -> None:
    with scripted(["queued", "ready", "draining", "asleep"], (200, WORD + END)) as caller:
        caller.rest("x", "?", within_s=5)
        assert [body["keep_alive"] for body in Script.asked] == [0]


def test_a_wake_across_a_set_clock_is_discarded_and_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The wall clock jumps by a minute within one wake: that one is measured again."""
    monkeypatch.setenv("TENURE_HOME", str(tmp_path))
    wall, jumps = time.time, {"at": 0.0}
    words = [(200, WORD + END)] * 20
    with scripted(["asleep"], *words) as caller:
        plain = Caller._ask

        def ask(self: Caller, *args: Any, **more: Any) -> Any:
            def late(response: Any) -> Any:
                yield from real(response)
                if len(Script.asked) == 5:  # the third wake's first question
                    jumps["at"] = 60.0

            real = lines
            monkeypatch.setattr("tenure_studies.cold_start.caller._lines", late)
            return plain(self, *args, **more)

        from tenure_studies.cold_start.caller import _lines as lines

        monkeypatch.setattr(Caller, "_ask", ask)
        monkeypatch.setattr("time.time", lambda: wall() + jumps["at"])
        url = f"http://{caller._host}:{caller._port}"
        found = cold_start(base_url=url, kept="a", fresh="b", wakes=2, pause=0.0)
    assert found["discarded"] == {"clock moved": 1}
    assert found["measured"] == 5


def test_nothing_measured_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENURE_HOME", str(tmp_path))
    with scripted(["asleep"], (404, '{"error": {"message": "there is no model"}}')) as caller:
        url = f"http://{caller._host}:{caller._port}"
        with pytest.raises(NotAnswered, match="no model"):
            cold_start(base_url=url, kept="a", fresh="b", wakes=2, pause=0.0)


def test_no_door_and_one_model_are_said_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TENURE_HOME", str(tmp_path))
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ValueError, match="OPENAI_BASE_URL"):
        cold_start(kept="a", fresh="b")
    with pytest.raises(ValueError, match="two models are compared"):
        cold_start(kept="a", fresh="a")
    with pytest.raises(ValueError, match="no http or https address"):
        cold_start(base_url="ftp://x", kept="a", fresh="b")


def test_the_summary_counts_why_and_keeps_the_first_apart() -> None:
    def wake(arm: str, number: int, seconds: float, discarded: str | None = None) -> dict[str, Any]:
        return {
            "arm": arm, "number": number, "phases": dict.fromkeys(PHASES, seconds), "total_s": seconds, "first_byte_s": seconds,
            "warm_first_token_s": seconds, "discarded": discarded, "disbelieved": [],
        }  # fmt: skip

    found = summary([wake("kept", 0, 9.0), wake("kept", 1, 1.0), wake("fresh", 1, 3.0), wake("fresh", 2, 99.0, "not answered: x")], 0)  # fmt: skip
    assert found["kept_first"]["load"] == 9.0
    assert found["kept"]["load"]["max"] == 1.0
    assert found["fresh"]["load"]["max"] == 3.0
    assert found["discarded"] == {"not answered": 1}
    assert found["measured"] == 3
