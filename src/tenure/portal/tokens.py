"""Bearer tokens: named files under `$TENURE_HOME/tokens`, mode 0600 from the first instant.

`operator` holds its token in clear, because the owner's own tools must find it; every other file holds a digest, so a
created token is shown once and never again.  Nothing in this module writes a token to a log or an error.

Who changes a token hands in `tell`, which is called with what is about to be done once nothing can refuse it any more, and
before it has any effect; where it raises, nothing was done.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import ipaddress
import json
import math
import os
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenure.control.verbs import TokenChange
from tenure.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound
from tenure.domain.events import EventKind
from tenure.domain.ids import Instant

from .grants import Grant

__all__ = ["OPERATOR", "Token", "TokenStore", "check_exposure", "is_loopback", "weakness"]

OPERATOR = "operator"
MIN_LENGTH = 32
MIN_BITS = 96
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")

_UNLIMITED = "the operator's token has no limits; create another one, and give it these"
_Files = tuple[tuple[str, int, int, int], ...]
_Tell = Callable[[TokenChange], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What the store keeps of a token: whose it is, what it may do and its digest, never the token."""

    name: str
    grant: Grant
    digest: bytes  # SHA-256 of the token

    @property
    def role(self) -> str:
        return self.grant.role

    @property
    def fingerprint(self) -> str:
        """For the diary: tells tokens apart and opens nothing (32 bits of the digest of a token of 256)."""
        return self.digest.hex()[:8]

    def public(self, now: Instant) -> dict[str, Any]:
        return {"name": self.name, **self.grant.public(now)}


def _now() -> Instant:
    return Instant(time.time_ns() // 1000)


def _nobody(change: TokenChange) -> None:
    """Where there is no diary."""


class TokenStore:
    """The tokens of one platform.  Reads follow the directory: a revoked token ends at its next request.

    Safe from several threads; one process writes.
    """

    def __init__(self, folder: Path, now: Callable[[], Instant] = _now) -> None:
        self.folder, self._now = folder, now
        self._writing = threading.Lock()
        self._kept: tuple[_Files | None, tuple[Token, ...]] = (None, ())  # one value: readers never mix two of them

    def ensure_operator(self, tell: _Tell = _nobody) -> str:
        """The operator's token, made on the first call."""
        path = self.folder / OPERATOR
        try:
            return path.read_text("ascii").strip()
        except FileNotFoundError:
            return self.create(OPERATOR, Grant(role=OPERATOR), tell)

    def create(self, name: str, grant: Grant | None = None, tell: _Tell = _nobody) -> str:
        """A new token, to be shown once.  Raises Conflict if the name is taken."""
        if not _NAME.fullmatch(name):
            raise InvalidRequest(f"{name!r} is no name for a token; use a-z, 0-9, '.', '_' and '-'", field="name")
        token = secrets.token_urlsafe(32)
        grant = dataclasses.replace(grant or Grant(), created_at=self._now())
        if name == OPERATOR:
            if grant.public(self._now()) != Grant(role=grant.role, created_at=grant.created_at).public(self._now()):
                raise InvalidRequest(_UNLIMITED)
            grant = dataclasses.replace(grant, role=OPERATOR)
        made = Token(name=name, grant=grant, digest=hashlib.sha256(token.encode()).digest())
        with self._writing:
            if os.path.lexists(self.folder / name):
                raise _taken(name)
            self._write(
                made,
                token + "\n" if name == OPERATOR else _text(made),
                lambda: tell(_told(EventKind.TOKEN_CREATED, made, self._now())),
            )
        return token

    def change(self, name: str, changes: Mapping[str, Any], tell: _Tell = _nobody) -> Token:
        """Other limits for the same token, from its next request on.  Raises NotFound, InvalidRequest."""
        if name == OPERATOR:
            raise InvalidRequest(_UNLIMITED)
        with self._writing:
            token = self._of(name)
            if token is None:
                raise _unknown(name)
            changed = dataclasses.replace(token, grant=token.grant.changed(changes))
            was, now = token.public(self._now()), changed.public(self._now())
            other = {key: value for key, value in was.items() if now[key] != value and key != "expired"}
            if other:
                told = _told(EventKind.TOKEN_CHANGED, changed, self._now(), was=other)
                self._write(changed, _text(changed), lambda: tell(told))
        return changed

    def all(self) -> tuple[Token, ...]:
        """Expired ones too, by name."""
        return self._read()

    def ls(self) -> list[dict[str, Any]]:
        now = self._now()
        return [token.public(now) for token in self._read()]

    def revoke(self, name: str, tell: _Tell = _nobody) -> None:
        """Raises NotFound for a name that no token has.  A damaged file goes, too: it opened nothing, and nobody is told."""
        try:
            if not _NAME.fullmatch(name):
                raise FileNotFoundError
            with self._writing:
                token = self._of(name)
                if token is not None:
                    tell(_told(EventKind.TOKEN_REVOKED, token, self._now()))
                (self.folder / name).unlink()
        except FileNotFoundError:
            raise _unknown(name) from None

    def find(self, presented: str) -> Token | None:
        """The token that was presented, compared in constant time with every one that there is; None once expired."""
        token = self.of_digest(hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest())
        return None if token is None or token.grant.expired(self._now()) else token

    def of_digest(self, digest: bytes) -> Token | None:
        """For somebody who has seen the token and tells its SHA-256; an expired one too, so that its owner is told."""
        found = None
        for token in self._read():
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found

    def named(self, name: str) -> Token | None:
        """None once expired."""
        token = self._of(name)
        return None if token is None or token.grant.expired(self._now()) else token

    def _of(self, name: str) -> Token | None:
        return next((token for token in self._read() if token.name == name), None)

    def _write(self, token: Token, text: str, tell: Callable[[], None]) -> None:
        """Readable by its owner alone from the first instant, and whole: it is on disk under another name, then it is told
        of, then it has its own."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / f".{token.name}.new"
        path.unlink(missing_ok=True)  # of a writer that was killed
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(fd, "w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            tell()
            path.replace(self.folder / token.name)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def _read(self) -> tuple[Token, ...]:
        files = _listed(self.folder)
        seen, tokens = self._kept
        if files != seen:
            tokens = tuple(t for name, *_ in files if (t := _parse(self.folder / name)) is not None)
            self._kept = (files, tokens)
        return tokens


def _listed(folder: Path) -> _Files:
    files = []
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # revoked this instant
                if _NAME.fullmatch(entry.name):
                    stat = entry.stat()
                    files.append((entry.name, stat.st_mtime_ns, stat.st_ino, stat.st_size))
    return tuple(sorted(files))


def _text(token: Token) -> str:
    return json.dumps({**token.grant.stored(), "sha256": token.digest.hex()}) + "\n"


def _told(kind: EventKind, token: Token, now: Instant, *, was: Mapping[str, Any] | None = None) -> TokenChange:
    rights = {key: value for key, value in token.grant.public(now).items() if key not in ("created_at", "expired")}
    return TokenChange(kind=kind, name=token.name, fingerprint=token.fingerprint, rights=rights, was=was or {})


def _taken(name: str) -> Conflict:
    return Conflict(f"a token named {name!r} exists; `tenure token set {name}` changes it, or revoke it first")


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no token named {name!r}; `tenure token ls` lists them")


def _parse(path: Path) -> Token | None:
    """A file that holds no token is none: it opens nothing."""
    try:
        text = path.read_text("utf-8").strip()
        if path.name == OPERATOR:
            digest = hashlib.sha256(text.encode()).digest()
            return Token(name=OPERATOR, grant=Grant(role="operator"), digest=digest) if text else None
        body: Mapping[str, Any] = json.loads(text)
        return Token(name=path.name, grant=Grant.read(body), digest=bytes.fromhex(body["sha256"]))
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
    remedy = (
        "`tenure up -d` once on 127.0.0.1 (without TENURE_HOST and TENURE_GATEWAY_HOST) makes the operator's, "
        "and there `tenure token create NAME` makes others"
    )
    if not store.all():
        raise Forbidden(
            f"{host} can be reached from other machines and there is no token; {remedy}", code="MissingToken"
        )
    for token in store.all():
        path = store.folder / token.name
        if path.stat().st_mode & 0o077:
            raise Forbidden(f"{path} can be read by other users; `chmod 600` it, and replace it", code="WeakToken")
    operator = store.folder / OPERATOR
    if operator.exists() and (why := weakness(operator.read_text("utf-8").strip())):
        raise Forbidden(
            f"{host} can be reached from other machines and the token in {operator} is weak: {why}; delete it: {remedy}",
            code="WeakToken",
        )
