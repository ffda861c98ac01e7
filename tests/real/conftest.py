"""A platform with real models behind its gateway: a resident embedding server and two language models that sleep."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
import yaml

from ..gateway.conftest import Home, eventually, opened
from .documents import documents

QUESTION = "What is the capital of France? Answer in one short sentence."


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """What examples/models declares, and the same language model once more under another name."""
    with opened(tmp_path_factory.mktemp("real") / "home") as home:
        for name, document in documents("embedder", "assistant").items():
            document["spec"]["stopTimeout"] = "60s"  # on busy cores a story takes its time
            (home.path / "policy" / f"{name}.yaml").write_text(yaml.safe_dump(document))
            if name == "assistant":
                document["metadata"]["name"] = "second"
                document["spec"] |= {"aliases": []}
                (home.path / "policy" / "second.yaml").write_text(yaml.safe_dump(document))
        home.rest("POST", "/policy:reload")
        eventually(lambda: len(home.heard()) == 3)
        yield home


@pytest.fixture
def home(real: Home) -> Iterator[Home]:
    """Each test finds both language models asleep and the embedding server up."""
    real.until("embedder", "ready", timeout=60)
    yield real
    for name in ("assistant", "second"):
        real.rest("POST", f"/models/{name}:sleep")
    for name in ("assistant", "second"):
        real.until(name, "asleep", timeout=30)


@pytest.fixture
def client(home: Home) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=home.url, api_key="sk-anything", max_retries=0, timeout=90) as client:
        yield client
