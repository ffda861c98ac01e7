"""Nothing under studies/ names a scheduler's object, asks for a card or reads what was sampled: this test fails the build
when something does."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import tenure

STUDIES = Path(__file__).parents[2] / "studies"

WORDS = re.compile(
    r"kueue|volcano|slurm|kubernetes|\bsbatch\b|\bsrun\b|\bsqueue\b|\bscancel\b|\bsalloc\b|clusterqueue|localqueue|"
    r"resourceflavor|priorityclass|podgroup|queue-name|nvidia\.com/|tenure\.dev/|(cuda|nvidia|hip|rocr)_visible_devices",
    re.IGNORECASE,
)
TELEMETRY = re.compile(r"/metrics\b|/api/v1|requests\.jsonl|/telemetry\b|prometheus|nvidia-smi|dcgm", re.IGNORECASE)
MODULES = {"kubernetes", "hera", "pyslurm", "submitit", "pynvml", "nvidia_smi", "cupy", "numba.cuda", "pycuda"}
DEVICE = re.compile(r"(cuda|gpu|/gpu|/device:gpu)(:\d+)?", re.IGNORECASE)
ROOM = re.compile(r"tenure\.[a-z_]+(\.|$)")


def offences(text: str, *, python: bool) -> list[str]:
    """What in a file of a study breaks the rule, in words."""
    found = [f"names {match.group(0)!r}" for match in WORDS.finditer(text)]
    if python:
        found += [f"reads {match.group(0)!r}" for match in TELEMETRY.finditer(text)]
        for node in ast.walk(ast.parse(text)):
            found += [f"line {getattr(node, 'lineno', 0)}: {offence}" for offence in _of_node(node)]
    return found


def _of_node(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [f"imports {name.name}" for name in names if _forbidden(name.name)]
        case ast.ImportFrom(module=str(module), names=names):
            if module == "tenure":
                return [f"imports tenure.{name.name}" for name in names if name.name not in tenure.__all__]
            return [f"imports {module}"] if _forbidden(module) else []
        case ast.Attribute(value=ast.Name(id="tenure"), attr=name):
            return [] if name in tenure.__all__ else [f"reaches tenure.{name}"]
        case ast.Attribute(attr="cuda" | "nvml" as name):
            return [f"asks for a card by .{name}"]
        case ast.Constant(value=str(said)) if DEVICE.fullmatch(said) or ROOM.match(said):
            return [f"says {said!r}"]
        case _:
            return []


def _forbidden(module: str) -> bool:
    return module.startswith("tenure.") or any(module == name or module.startswith(name + ".") for name in MODULES)


def files() -> list[Path]:
    return [
        path
        for path in sorted(STUDIES.rglob("*"))
        if path.is_file() and not any(part == "__pycache__" or part.endswith(".egg-info") for part in path.parts)
    ]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(STUDIES)))
def test_a_study_reaches_the_card_through_its_step_alone(path: Path) -> None:
    assert offences(path.read_text(), python=path.suffix == ".py") == []


def test_there_is_something_to_look_at() -> None:
    names = {path.name for path in files()}
    assert {"digits.py", "digits.sh", "cold_start.sh", "caller.py", "README.md", "pyproject.toml"} <= names


@pytest.mark.parametrize(
    "line",
    [
        "queue = 'kueue.x-k8s.io/queue-name'",
        "kind = 'ClusterQueue'",
        "import os; os.environ['SLURM_JOB_ID']",
        "# sbatch would do it",
        "subprocess.run(['srun', 'x'])",
        "limits = {'nvidia.com/gpu': 1}",
        "os.environ['CUDA_VISIBLE_DEVICES'] = '0'",
        "model.cuda()",
        "torch.cuda.set_device(0)",
        "x = x.to('cuda:1')",
        'x = torch.zeros(3, device="cuda")',
        "with tf.device('/GPU:0'): pass",
        "jax.devices('gpu')",
        "import pynvml",
        "urlopen(f'{base}/metrics')",
        "httpx.get(url + '/api/v1/models')",
        "(home / 'gateway' / 'requests.jsonl').read_text()",
        "subprocess.run(['nvidia-smi'])",
        "from kubernetes import client",
        "import tenure.control.verbs",
        "from tenure.domain.job import JobSpec",
        "from tenure import control",
        "tenure.control.verbs.submit()",
        "importlib.import_module('tenure.ledger')",
    ],
)
def test_the_rule_catches(line: str) -> None:
    assert offences(line, python=True)


@pytest.mark.parametrize(
    "line",
    [
        "import tenure",
        "from tenure import Run, study",
        "run = tenure.current_run()",
        "print('the card is busy')",
        "srunning = 1",
        "from sklearn import metrics",
    ],
)
def test_the_rule_lets_through(line: str) -> None:
    assert not offences(line, python=True)
