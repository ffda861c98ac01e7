"""What code is this?  Values that are equal exactly when the code in a working tree is.

Taken at submit, again at start, and by the run itself of what it imported.  Taking one never raises: what could not be
read is said in the value's `error`.  Outside a git working tree it costs some `stat` calls and the hashes of the files
named; inside one, a `git status`, and a `git diff` where something was changed.
"""

from __future__ import annotations

import hashlib
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Fingerprint = Mapping[str, object]

__all__ = ["explain_difference", "fingerprint", "hash_file", "imported_files", "same"]

_LARGEST_FILE = 8 << 20  # larger untracked files are told apart by size and mtime: data, not code
_MOST_BYTES = 64 << 20
_MOST_FILES = 2_000
_MOST_NAMED = 200
_GIT_TIMEOUT_S = 20.0
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def fingerprint(workdir: str | os.PathLike[str], files: Sequence[str] = ()) -> dict[str, object]:
    """The fingerprint of the code in `workdir`.  `files` (the script that runs) are hashed in any case.

    `kind` is `git` (with `root`, `commit`, `branch`, `dirty`, `diff_sha256`, `untracked`) or `files`; `digest` is over
    all that matters, and is what `same` compares.
    """
    where = os.path.abspath(os.fspath(workdir))
    value: dict[str, object] = {"kind": "files"}
    try:
        named = _hash_named(where, files)
        root = _git_root(where)
        if root is not None:
            value = {"kind": "git", "root": root}
            value.update(_git(root))
        if named:
            value["files"] = named
    except (OSError, ValueError) as problem:
        value["error"] = str(problem)
    value["digest"] = _digest({k: v for k, v in value.items() if k not in ("root", "branch", "error")})
    return value


def imported_files() -> dict[str, object]:
    """Hashes of the modules this process has imported from outside site-packages and the standard library.

    Paths are relative to the working directory where they lie below it.  tenure itself is not listed.
    """
    here, aside = os.getcwd(), _installed()
    found: dict[str, str] = {}
    for name, module in sorted(list(sys.modules.items())):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not path.endswith(".py") or name.partition(".")[0] == "tenure":
            continue
        path = os.path.abspath(path)
        if (
            path.startswith(aside)
            or f"{os.sep}site-packages{os.sep}" in path
            or f"{os.sep}dist-packages{os.sep}" in path
        ):
            continue
        shown = path[len(here) + 1 :] if path.startswith(here + os.sep) else path
        if shown not in found and len(found) < _MOST_FILES:
            found[shown] = _hash_or_error(path)
    return {"kind": "imported", "files": found, "digest": _digest(found)}


def same(a: Fingerprint, b: Fingerprint) -> bool:
    """Is it the same code?  An empty fingerprint (none was taken) is like any other."""
    return not a or not b or a.get("digest") == b.get("digest")


def explain_difference(a: Fingerprint, b: Fingerprint) -> str:
    """One sentence on how `b` differs from `a`, naming files where they are known; ``""`` where it does not."""
    if same(a, b):
        return ""
    parts: list[str] = []
    if a.get("kind") != b.get("kind"):
        parts.append(f"it was {_tree(a)} and is {_tree(b)}")
    if a.get("commit") != b.get("commit"):
        parts.append(f"the commit was {_short(a.get('commit'))} and is {_short(b.get('commit'))}")
    if a.get("diff_sha256") != b.get("diff_sha256"):
        changed = sorted(set(_names(a.get("changed"))) ^ set(_names(b.get("changed"))) or set(_names(b.get("changed"))))
        parts.append("uncommitted changes differ" + _listed(changed))
    for field, said in (("untracked", "untracked files differ"), ("files", "files differ")):
        before, after = _hashes(a.get(field)), _hashes(b.get(field))
        if a.get(field) != b.get(field):
            names = sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
            parts.append(said + _listed(names))
    return "; ".join(parts) or "the code differs"


def hash_file(path: str | os.PathLike[str]) -> str:
    """sha256 of a file's bytes.  Raises OSError."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _git_root(where: str) -> str | None:
    while True:
        if os.path.lexists(os.path.join(where, ".git")):
            return where
        parent = os.path.dirname(where)
        if parent == where:
            return None
        where = parent


def _git(root: str) -> dict[str, object]:
    status = _ask_git(root, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all")
    if isinstance(status, str):
        return {"error": status}
    commit: str | None = None
    branch: str | None = None
    changed: list[str] = []
    untracked: list[str] = []
    entries = iter(os.fsdecode(status).split("\0"))
    for entry in entries:
        mark, _, rest = entry.partition(" ")
        if mark == "#":
            field, _, text = rest.partition(" ")
            if field == "branch.oid" and text != "(initial)":
                commit = text
            elif field == "branch.head" and text != "(detached)":
                branch = text
        elif mark == "?":
            untracked.append(rest)
        elif mark == "1":
            changed.append(rest.split(" ", 7)[-1])
        elif mark == "2":  # a rename: its old name is the next entry
            changed.append(rest.split(" ", 8)[-1])
            next(entries, "")
        elif mark == "u":
            changed.append(rest.split(" ", 9)[-1])
    value: dict[str, object] = {"commit": commit, "branch": branch, "dirty": bool(changed or untracked)}
    if changed:
        diff = _ask_git(
            root, "diff", "--binary", "--no-color", "--no-ext-diff", "--no-textconv", commit or _EMPTY_TREE, "--"
        )
        if isinstance(diff, str):
            return {**value, "error": diff}
        value["diff_sha256"] = hashlib.sha256(diff).hexdigest()
        value["changed"] = sorted(changed)[:_MOST_NAMED]
    if untracked:
        value["untracked"] = _hash_untracked(root, sorted(untracked))
    return value


def _ask_git(root: str, *words: str) -> bytes | str:
    """git's answer; a text if it had none."""
    import subprocess

    env = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    # no lock on the index of somebody who works there, no question to anybody, no program of the tree's own choosing
    env |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false", *words],
            cwd=root, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=_GIT_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, ValueError) as problem:
        return f"git could not be run: {problem}"
    except subprocess.TimeoutExpired:
        return f"git {words[0]} took longer than {_GIT_TIMEOUT_S:.0f} s"
    if done.returncode != 0:
        return f"git {words[0]}: {done.stderr.decode('utf-8', 'replace').strip()[:500]}"
    return done.stdout


def _hash_untracked(root: str, names: list[str]) -> dict[str, object]:
    hashes: dict[str, str] = {}
    left = _MOST_BYTES
    for name in names[:_MOST_FILES]:
        path = os.path.join(root, name)
        try:
            found = os.lstat(path)
            if os.path.islink(path):
                hashes[name] = "-> " + os.readlink(path)
            elif found.st_size > min(_LARGEST_FILE, left):
                hashes[name] = f"size {found.st_size}, mtime {found.st_mtime_ns}"
            elif os.path.isfile(path):
                left -= found.st_size
                hashes[name] = hash_file(path)
        except OSError as problem:
            hashes[name] = f"unreadable: {problem.strerror}"
    value: dict[str, object] = {"count": len(names), "digest": _digest(hashes)}
    value["files"] = {name: hashes[name] for name in list(hashes)[:_MOST_NAMED]}
    if len(names) > _MOST_FILES:
        value["unhashed"] = len(names) - _MOST_FILES
    return value


def _hash_named(where: str, files: Sequence[str]) -> dict[str, str]:
    hashes: dict[str, str] = {}
    for name in files[:_MOST_NAMED]:
        path = os.path.normpath(os.path.join(where, name))
        if os.path.isfile(path):  # never a FIFO or a device: reading it could wait for ever
            hashes[path[len(where) + 1 :] if path.startswith(where + os.sep) else path] = _hash_or_error(path)
    return hashes


def _hash_or_error(path: str) -> str:
    try:
        size = os.stat(path)
        if size.st_size > _MOST_BYTES:
            return f"size {size.st_size}, mtime {size.st_mtime_ns}"
        return hash_file(path)
    except OSError as problem:
        return f"unreadable: {problem.strerror}"


def _installed() -> tuple[str, ...]:
    roots = {os.path.dirname(os.path.abspath(os.__file__)), os.path.join(sys.prefix, "lib"), "/usr/lib/python3"}
    return tuple(root + os.sep for root in roots)


def _digest(value: object) -> str:
    from .lines import encode

    return hashlib.sha256(encode(_sorted(value)).encode("utf-8", "surrogatepass")).hexdigest()


def _sorted(value: object) -> object:
    return {str(key): _sorted(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


def _names(value: object) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list) else []


def _hashes(value: object) -> dict[str, object]:
    if isinstance(value, dict) and isinstance(value.get("files"), dict):
        value = value["files"]
    return value if isinstance(value, dict) else {}


def _listed(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ": " + ", ".join(names[:5]) + more


def _tree(value: Fingerprint) -> str:
    return "a git working tree" if value.get("kind") == "git" else "a folder without git"


def _short(commit: object) -> str:
    return str(commit)[:12] if commit else "none"
