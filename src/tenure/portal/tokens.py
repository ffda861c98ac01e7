"""Bearer tokens: named files under `$TENURE_HOME/tokens`, mode 0600 from the first instant.

`operator` holds its token in clear, because the owner's own tools must find it; every other file holds a digest, so a
created token is shown once and never again.  Nothing in this module writes a token to a log or an error.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import math
import os
import re
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tenure.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound

__all__ = ["OPERATOR", "Token", "TokenStore", "check_exposure", "is_loopback", "weakness"]

OPERATOR = "operator"
MIN_LENGTH = 32
MIN_BITS = 96
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_ROLES = ("operator", "user")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What the store keeps of a token: whose it is and its digest, never the token."""

    name: str
    role: str
    digest: bytes  # SHA-256 of the token

    def public(self) -> dict[str, str]:
        return {"name": self.name, "role": self.role}


class TokenStore:
    """The tokens of one platform.  Reads follow the directory: a revoked token ends at its next request."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: tuple[tuple[str, int, int], ...] | None = None
        self._tokens: tuple[Token, ...] = ()

    def ensure_operator(self) -> str:
        """The operator's token, made on the first call."""
        path = self.folder / OPERATOR
        try:
            return path.read_text("ascii").strip()
        except FileNotFoundError:
            token = secrets.token_urlsafe(32)
            self._write(OPERATOR, token + "\n")
            return token

    def create(self, name: str, *, role: str = "user") -> str:
        """A new token, to be shown once.  Raises Conflict if the name is taken."""
        if not _NAME.fullmatch(name):
            raise InvalidRequest(f"{name!r} is no name for a token; use a-z, 0-9, '.', '_' and '-'", field="name")
        if role not in _ROLES:
            raise InvalidRequest(f"{role!r} is no role; use one of {', '.join(_ROLES)}", field="role")
        token = secrets.token_urlsafe(32)
        if name == OPERATOR:
            self._write(OPERATOR, token + "\n")
        else:
            digest = hashlib.sha256(token.encode()).hexdigest()
            self._write(name, json.dumps({"role": role, "sha256": digest}) + "\n")
        return token

    def ls(self) -> list[dict[str, str]]:
        return [token.public() for token in self._read()]

    def revoke(self, name: str) -> None:
        """Raises NotFound for a name that no token has."""
        try:
            if not _NAME.fullmatch(name):
                raise FileNotFoundError
            (self.folder / name).unlink()
        except FileNotFoundError:
            raise NotFound(f"there is no token named {name!r}; `tenure token ls` lists them") from None

    def find(self, presented: str) -> Token | None:
        """The token that was presented, compared in constant time with every one that there is."""
        return self.of_digest(hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest())

    def of_digest(self, digest: bytes) -> Token | None:
        """The same for somebody who has seen the token and tells its SHA-256."""
        found = None
        for token in self._read():
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found

    def named(self, name: str) -> Token | None:
        return next((token for token in self._read() if token.name == name), None)

    def _write(self, name: str, text: str) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            fd = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            raise Conflict(f"a token named {name!r} exists; revoke it first, or choose another name") from None
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> tuple[Token, ...]:
        try:
            with os.scandir(self.folder) as entries:
                files = sorted(
                    (e.name, (s := e.stat()).st_mtime_ns, s.st_ino) for e in entries if _NAME.fullmatch(e.name)
                )
        except FileNotFoundError:
            files = []
        if tuple(files) != self._seen:
            self._tokens = tuple(t for name, _, _ in files if (t := _parse(self.folder / name)) is not None)
            self._seen = tuple(files)
        return self._tokens


def _parse(path: Path) -> Token | None:
    """A file that holds no token is none: it opens nothing."""
    try:
        text = path.read_text("utf-8").strip()
        if path.name == OPERATOR:
            return (
                Token(name=OPERATOR, role="operator", digest=hashlib.sha256(text.encode()).digest()) if text else None
            )
        body: Mapping[str, str] = json.loads(text)
        role = body["role"]
        return Token(name=path.name, role=role, digest=bytes.fromhex(body["sha256"])) if role in _ROLES else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def weakness(token: str) -> str | None:
    """Why a token can be guessed, or None.  The measure is Shannon's over its own characters, after looking for repeats."""
    if len(token) < MIN_LENGTH:
        return f"it has {len(token)} characters, and {MIN_LENGTH} is the least"
    if token in (token + token)[1:-1]:
        return "it repeats itself"
    counts = Counter(token)
    bits = -sum(n * math.log2(n / len(token)) for n in counts.values())
    if bits < MIN_BITS:
        return f"it uses {len(counts)} different characters, which is too few"
    return None


def check_exposure(host: str, store: TokenStore) -> None:
    """Raises Forbidden where listening on `host` would be guarded by a missing, weak or readable token."""
    if is_loopback(host):
        return
    remedy = "run `tenure token create operator`, or listen on 127.0.0.1 (TENURE_HOST)"
    if not store.ls():
        raise Forbidden(
            f"{host} can be reached from other machines and there is no token; {remedy}", code="MissingToken"
        )
    for token in store.ls():
        path = store.folder / token["name"]
        if path.stat().st_mode & 0o077:
            raise Forbidden(f"{path} can be read by other users; `chmod 600` it, and replace it", code="WeakToken")
    operator = store.folder / OPERATOR
    if operator.exists() and (why := weakness(operator.read_text("utf-8").strip())):
        raise Forbidden(
            f"{host} can be reached from other machines and the token in {operator} is weak: {why}; delete it and {remedy}",
            code="WeakToken",
        )
