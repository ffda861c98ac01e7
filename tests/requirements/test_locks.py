"""The locks hold what the projects ask for, by version and hash, and name no registry."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "requirements"


def pins(name: str) -> dict[str, set[Version]]:
    """Package -> versions (one per range of Pythons), each with hashes."""
    found: dict[str, set[Version]] = {}
    for entry in re.split(r"\n(?=[a-z0-9])", (LOCKS / name).read_text()):
        match = re.match(r"([a-z0-9._-]+)==([^ ;]+)", entry)
        if match:
            assert "--hash=sha256:" in entry, f"{match[1]} has no hash"
            found.setdefault(canonicalize_name(match[1]), set()).add(Version(match[2]))
    return found


def wanted(path: str, *extras: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / path).read_text())["project"]
    texts = list(project.get("dependencies", ()))
    for extra in extras:
        texts += project["optional-dependencies"][extra]
    return [Requirement(text) for text in texts]


def listed(name: str) -> list[Requirement]:
    lines = (LOCKS / name).read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize(
    ("lock", "requirements"),
    [
        ("lock.txt", wanted("pyproject.toml", "server", "postgres", "dev")),
        ("lock.txt", wanted("studies/pyproject.toml")),
        ("lock.txt", listed("lock.in")),
        ("card.txt", wanted("pyproject.toml", "server")),
        ("card.txt", listed("card.in")),
        ("assets.txt", listed("assets.in")),
        ("models.txt", listed("models.in")),
        ("cold_start.txt", listed("cold_start.in")),
    ],
    ids=["package", "studies", "lock", "card-package", "card", "assets", "models", "cold-start"],
)
def test_a_lock_holds_what_is_asked_for(lock: str, requirements: list[Requirement]) -> None:
    pinned = pins(lock)
    assert requirements
    for requirement in requirements:
        name = canonicalize_name(requirement.name)
        if name == "tenure":
            continue  # the studies stand on the package, which is installed from this tree
        assert name in pinned, f"{requirement} is not in {lock}; its first lines say how to make it anew"
        assert all(requirement.specifier.contains(version) for version in pinned[name]), requirement


def test_a_card_machine_gets_the_versions_that_were_tested() -> None:
    tested, packed = pins("lock.txt"), pins("card.txt")
    assert {name: versions for name, versions in packed.items() if name != "pip"}.items() <= tested.items()


def test_no_registry_is_named() -> None:
    for path in sorted(LOCKS.iterdir()):
        assert "://" not in path.read_text(), path.name
        assert "index-url " not in path.read_text().replace("--no-emit-index-url ", ""), path.name
