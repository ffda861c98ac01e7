"""The documents of examples/models, with this Python as theirs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "examples" / "models"


def documents(*names: str) -> dict[str, dict[str, Any]]:
    found = {}
    for name in names:
        document = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
        command = document["spec"]["command"]
        assert command[0] == "python"
        document["spec"]["command"] = [sys.executable, *command[1:]]
        found[name] = document
    return found
