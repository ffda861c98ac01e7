"""What belongs to requests: answers kept by idempotency key, and environments kept by their content."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import bindparam, delete, insert, select

from tenure.domain.errors import Conflict, NotFound
from tenure.domain.ids import Instant

from .columns import digest_of, from_json
from .columns import to_json as _to_json
from .diary import DiaryWriter
from .schema import environments, idempotency
from .session import Session

__all__ = ["RequestReads", "RequestWrites", "environment_digest"]

_ANSWER = select(idempotency.c.request_hash, idempotency.c.answer).where(
    idempotency.c.scope == bindparam("scope"), idempotency.c.key == bindparam("key")
)
_FORGET = delete(idempotency).where(idempotency.c.at < bindparam("before"))
_ENVIRONMENT = select(environments.c.body).where(environments.c.digest == bindparam("digest"))


def _canonical(environment: Mapping[str, str]) -> str:
    return _to_json(dict(sorted(environment.items())))


def environment_digest(environment: Mapping[str, str]) -> str:
    """The name under which `put_environment` keeps it; the order of its variables does not matter."""
    return digest_of(_canonical(environment))


class RequestReads(Session):
    """Questions about requests."""

    def environment(self, digest: str) -> dict[str, str]:
        """Raises NotFound."""
        row = self._row(_ENVIRONMENT, {"digest": digest})
        if row is None:
            raise NotFound(f"there is no environment {digest}")
        found: dict[str, str] = from_json(row[0])
        return found


class RequestWrites(RequestReads, DiaryWriter):
    """What a request leaves, inside its transaction.  Answers are gathered, and written before anybody looks for one."""

    _answers: list[dict[str, Any]]
    _environments_there: Collection[str]
    environments_kept: set[str]

    def idempotent(self, scope: str, key: str, request_hash: str) -> str | None:
        """The answer that this key was given before.  Raises Conflict where it came with another request."""
        self._write_answers()
        row = self._row(_ANSWER, {"scope": scope, "key": key})
        if row is None:
            return None
        if row[0] != request_hash:
            raise Conflict(
                f"the idempotency key {key!r} was used for another request; use a new key for a new request",
                code="IdempotencyKeyReused",
            )
        return str(row[1])

    def remember(self, scope: str, key: str, request_hash: str, answer: str, at: Instant) -> None:
        """Keep the answer with the work that it tells of: both are there, or neither."""
        self._answers.append({"scope": scope, "key": key, "request_hash": request_hash, "answer": answer, "at": at})

    def _write_answers(self) -> None:
        if self._answers:
            answers, self._answers = self._answers, []
            self._write(insert(idempotency), answers)

    def forget_answers(self, *, before: Instant) -> int:
        """Drop the answers older than that; how many there were."""
        self._write_answers()
        return self._write(_FORGET, [{"before": before}])

    def put_environment(self, environment: Mapping[str, str], at: Instant) -> str:
        """Keep it once per content; its digest."""
        text = _canonical(environment)
        digest = digest_of(text)
        if digest in self._environments_there or digest in self.environments_kept:
            return digest
        if self._row(_ENVIRONMENT, {"digest": digest}) is None:
            self._write(insert(environments), [{"digest": digest, "body": text, "at": at}])
        self.environments_kept.add(digest)
        return digest
