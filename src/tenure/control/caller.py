"""Who asks: every verb takes one, and the diary keeps the name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tenure.domain.errors import Forbidden

__all__ = ["INTERNAL", "Caller", "operators_only"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A person or agent behind a request.  Operators may touch everything; users their own jobs."""

    user: str
    uid: int | None = None
    via: Literal["socket", "token", "internal"] = "internal"
    role: Literal["operator", "user"] = "operator"

    def may_change(self, owner: str) -> bool:
        return self.role == "operator" or self.user == owner


INTERNAL = Caller(user="tenure")


def operators_only(caller: Caller, what: str) -> None:
    """Raises Forbidden for anybody else, naming `what` may not be done."""
    if caller.role != "operator":
        raise Forbidden(f"only an operator may {what}")
