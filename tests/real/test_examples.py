"""The documents that users copy are ones that the platform takes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from ..gateway.conftest import Home
from .documents import FOLDER


def test_every_example_is_a_model_that_the_policy_check_takes(real: Home, tmp_path: Path) -> None:
    shutil.copytree(real.path / "policy", tmp_path / "policy")
    examples = sorted(FOLDER.rglob("*.yaml"))
    assert len(examples) >= 5
    for path in examples:
        shutil.copy(path, tmp_path / "policy")
    said = real.tenure("policy", "check", str(tmp_path / "policy"))
    assert "warning" not in said.lower()
    assert not re.search(r"\b(unknown|not read)\b", said), said
    broken = tmp_path / "policy" / "vllm.yaml"
    broken.write_text(broken.read_text().replace("idleAfter:", "idleAfterwards:"))
    with pytest.raises(AssertionError, match="idleAfterwards"):
        real.tenure("policy", "check", str(tmp_path / "policy"))


def test_what_a_template_says_twice_it_says_alike() -> None:
    """A server's own name is the model's, or clients would be told of a model that is not there."""
    for path in FOLDER.glob("*.yaml"):
        document = yaml.safe_load(path.read_text())
        name, command = document["metadata"]["name"], document["spec"]["command"]
        words = " ".join(command)
        assert "{port}" in words, path.name
        for flag in ("--served-model-name=", "--alias ", "--name "):
            if flag in words:
                assert words.partition(flag)[2].split()[0] == name, path.name
        for adapter in document["spec"].get("adapters", ()):
            assert f"{adapter['name']}=" in words, path.name
