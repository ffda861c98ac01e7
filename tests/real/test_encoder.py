"""Our few lines of BERT are the sentence-transformer that its weights are of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from tenure.testing.embed_server import Encoder, minilm


@pytest.fixture(scope="module")
def encoder() -> Iterator[Encoder]:
    with threadpool_limits(limits=1):  # on busy cores more threads wait for each other most of the time
        yield Encoder(minilm())


def test_the_vectors_are_the_published_network_s(encoder: Encoder) -> None:
    """Seen once beside an ONNX export of the same weights on another runtime: cosines of 0.9992 and more to its eight-bit numbers."""
    vectors, tokens = encoder.encode(
        ["The cat sits on the mat.", "A kitten rests on the rug.", "Grüße aus Zürich, 2024!"]
    )
    assert vectors.shape == (3, 384)
    assert tokens == 29
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert vectors[0][:5] == pytest.approx([0.1342, -0.0329, -0.0248, 0.0414, -0.0363], abs=1e-3)
    assert vectors[2][:5] == pytest.approx([-0.0222, 0.1095, 0.0391, -0.033, -0.0055], abs=1e-3)
    assert float(vectors[0] @ vectors[1]) == pytest.approx(0.6556, abs=1e-3)


def test_company_and_length_change_nothing(encoder: Encoder) -> None:
    texts = [f"{word} " * count for count, word in enumerate(["one", "two", "three", "many", "words"] * 9, start=1)]
    together, _ = encoder.encode(texts)  # two batches, padded to their longest
    alone = np.concatenate([encoder.encode([text])[0] for text in texts])
    assert np.abs(together - alone).max() < 1e-4
    (long, longer), tokens = encoder.encode(["word " * 300, "word " * 3000])
    assert tokens == 2 * 256, "cut where the network's own settings cut it"
    assert np.abs(long - longer).max() < 1e-5
