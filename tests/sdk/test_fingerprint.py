"""Fingerprints are equal exactly when the code is, and say where it is not.  Real git, real trees."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tenure.sdk.fingerprint import explain_difference, fingerprint, imported_files, same


def git(tree: Path, *words: str) -> str:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for who in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{who}_NAME": "a", f"GIT_{who}_EMAIL": "a@example.org"}
    return subprocess.run(["git", *words], cwd=tree, env=env, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "a tree ünd"
    tree.mkdir()
    git(tree, "init", "-q", "-b", "main")
    (tree / "train.py").write_text("print(1)\n")
    (tree / ".gitignore").write_text("*.log\n")
    git(tree, "add", ".")
    git(tree, "commit", "-q", "-m", "one")
    return tree


def test_a_clean_tree_is_its_commit(tree: Path) -> None:
    value = fingerprint(tree)
    assert value["kind"] == "git"
    assert value["commit"] == git(tree, "rev-parse", "HEAD")
    assert value["branch"] == "main"
    assert value["dirty"] is False
    assert "error" not in value
    assert same(value, fingerprint(tree))
    assert explain_difference(value, fingerprint(tree)) == ""


def test_the_same_code_looked_at_from_a_folder_within(tree: Path) -> None:
    (tree / "deep").mkdir()
    assert same(fingerprint(tree), fingerprint(tree / "deep"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tree: (tree / "train.py").write_text("print(2)\n"), "uncommitted changes differ: train.py"),
        (lambda tree: (tree / "train.py").unlink(), "uncommitted changes differ: train.py"),
        (lambda tree: (tree / "train.py").chmod(0o755), "uncommitted changes differ: train.py"),
        (lambda tree: (tree / "新 file\n.py").write_text("x"), "untracked files differ: 新 file\n.py"),
        (lambda tree: git(tree, "commit", "-q", "--allow-empty", "-m", "two"), "the commit was"),
        (lambda tree: git(tree, "mv", "train.py", "fit.py"), "uncommitted changes differ: fit.py"),
    ],
    ids=["edited", "deleted", "mode", "untracked", "committed", "renamed"],
)
def test_every_change_is_seen_and_named(tree: Path, change: object, said: str) -> None:
    before = fingerprint(tree)
    assert callable(change)
    change(tree)
    after = fingerprint(tree)
    assert not same(before, after)
    assert said in explain_difference(before, after)
    assert same(after, fingerprint(tree))


def test_a_second_edit_of_a_dirty_file_is_seen(tree: Path) -> None:
    (tree / "train.py").write_text("print(2)\n")
    (tree / "new.py").write_text("a")
    before = fingerprint(tree)
    assert before["dirty"] is True
    (tree / "train.py").write_text("print(3)\n")
    (tree / "new.py").write_text("b")
    said = explain_difference(before, fingerprint(tree))
    assert "train.py" in said
    assert "new.py" in said


def test_ignored_files_and_the_index_do_not_matter(tree: Path) -> None:
    before = fingerprint(tree)
    (tree / "out.log").write_text("noise")
    assert same(before, fingerprint(tree))
    (tree / "train.py").write_text("print(2)\n")
    unstaged = fingerprint(tree)
    git(tree, "add", "train.py")
    assert same(unstaged, fingerprint(tree))


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("1")
    git(tmp_path, "add", "a.py")
    before = fingerprint(tmp_path)
    assert before["commit"] is None
    assert "error" not in before
    (tmp_path / "a.py").write_text("2")
    assert not same(before, fingerprint(tmp_path))


def test_without_git_it_is_the_files_named_and_fast(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    before = fingerprint(tmp_path, ["train.py", "--epochs", "3", str(tmp_path)])
    assert before["kind"] == "files"
    assert list(before["files"]) == ["train.py"]  # type: ignore[call-overload]
    assert same(before, fingerprint(tmp_path, [str(tmp_path / "train.py")]))
    best = 1.0
    for _ in range(20):
        begin = time.perf_counter()
        fingerprint(tmp_path, ["train.py"])
        best = min(best, time.perf_counter() - begin)
    assert best < 0.001
    (tmp_path / "train.py").write_text("print(2)")
    after = fingerprint(tmp_path, ["train.py"])
    assert not same(before, after)
    assert explain_difference(before, after) == "files differ: train.py"


def test_it_never_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pipe").touch()
    (tmp_path / "pipe").unlink()
    os.mkfifo(tmp_path / "pipe")
    assert "files" not in fingerprint(tmp_path, ["pipe", "missing", "\0", "x" * 10_000])
    assert fingerprint(tmp_path / "nowhere")["kind"] == "files"
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")
    assert "git status" in str(fingerprint(tmp_path)["error"])
    monkeypatch.setenv("PATH", "")
    assert "could not be run" in str(fingerprint(tmp_path)["error"])


def test_no_fingerprint_differs_from_none() -> None:
    assert same({}, {"digest": "a"})
    assert explain_difference({}, {"digest": "a"}) == ""


def test_large_untracked_data_is_bounded(tree: Path) -> None:
    with (tree / "data.bin").open("wb") as file:
        file.truncate(5 << 30)
    before = sum(os.times()[:4])  # of the processor, with that of git
    value = fingerprint(tree)
    assert sum(os.times()[:4]) - before < 1.0
    assert "size 5368709120" in str(value["untracked"])


def test_imported_files_are_the_experiments_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_model.py").write_text("x = 1\n")
    found = importlib.util.spec_from_file_location("my_model", tmp_path / "my_model.py")
    assert found is not None
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, "my_model", module)
    value = imported_files()
    files = value["files"]
    assert isinstance(files, dict)
    assert "my_model.py" in files
    assert not [
        name for name in files if "site-packages" in name or "tenure/sdk" in name or name.endswith("/json/decoder.py")
    ]
    (tmp_path / "my_model.py").write_text("x = 2\n")
    assert not same(value, imported_files())
