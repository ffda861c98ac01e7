"""The policy, as it stands and as a directory would make it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tenure.domain.errors import InvalidManifest, Problem
from tenure.manifests.dump import dump_policy
from tenure.manifests.dump_models import dump_models
from tenure.manifests.policy import read_policy

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["check_policy", "policy"]


def policy(platform: Platform) -> dict[str, Any]:
    """What is in force, as v1beta2 YAML and the models as their documents, the files it came from, and warnings.

    The values of a model's environment are left out: everybody may look here, and they may be secrets.
    """
    held = platform.policy
    models = [replace(model, env=dict.fromkeys(model.env, "***")) for model in held.models.values()]
    return {
        "yaml": "---\n".join(text for text in (dump_policy(held.current), dump_models(models)) if text),
        "files": [str(path) for path in held.files],
        "problems": [problem_json(problem) for problem in held.problems],
    }


def check_policy(files: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Read files as the platform would, and change nothing."""
    try:
        reading = read_policy([(name, text) for name, text in files])
    except InvalidManifest as error:
        return {"ok": False, "problems": [problem_json(problem) for problem in error.problems]}
    return {"ok": True, "problems": [problem_json(problem) for problem in reading.problems]}


def problem_json(problem: Problem) -> dict[str, Any]:
    return {
        "file": problem.file,
        "document": problem.document,
        "line": problem.line,
        "field": problem.field,
        "message": problem.message,
        "severity": problem.severity,
    }
