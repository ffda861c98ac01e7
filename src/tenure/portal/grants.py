"""What a token may do: its role, its scopes, the models that it may ask, how much of them, and until when.

A pure value with two forms: what its file keeps (files of older versions say less, and mean "no limit"), and what REST
says.  The gateway holds requests against it (`gateway/allowance.py`); the portal's gate asks for its scopes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenure.control.clock import from_wire, wire
from tenure.domain.errors import InvalidRequest
from tenure.domain.ids import Instant

__all__ = ["LIMITS", "ROLES", "SCOPES", "Grant"]

ROLES = ("operator", "user")
SCOPES = ("jobs", "models")
"""`jobs` is the platform's own API and pages, `models` the gateway."""
LIMITS = ("requests_per_minute", "tokens_per_minute", "tokens_per_day")
MOST = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Everything a token may do.  None stands for no limit; raises InvalidRequest for what cannot be meant."""

    role: str = "user"
    scopes: tuple[str, ...] = SCOPES
    models: tuple[str, ...] | None = None  # names as `/v1/models` lists them, or aliases
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None  # model tokens, of prompts and answers together
    tokens_per_day: int | None = None  # of a day in UTC
    created_at: Instant | None = None
    expires_at: Instant | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise InvalidRequest(f"{self.role!r} is no role; use one of {', '.join(ROLES)}", field="role")
        if not self.scopes or not set(self.scopes) <= set(SCOPES) or len(set(self.scopes)) < len(self.scopes):
            raise InvalidRequest(f"a token is for one or both of {', '.join(SCOPES)}", field="scopes")
        if self.role == "operator" and "jobs" not in self.scopes:
            raise InvalidRequest("an operator's token cannot be for models only; leave the role or the scope out", field="scopes")  # fmt: skip
        _check_models(self.models)
        for name in LIMITS:
            limit = getattr(self, name)
            if limit is not None and (type(limit) is not int or not 1 <= limit <= MOST):
                raise InvalidRequest(f"{name} is at least 1 (and null for no limit); scopes can close the models to a token", field=name)  # fmt: skip

    def changed(self, changes: Mapping[str, Any]) -> Grant:
        """The same with other values.  Raises InvalidRequest."""
        return dataclasses.replace(self, **changes)

    def expired(self, now: Instant) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def public(self, now: Instant) -> dict[str, Any]:
        """As REST says it."""
        return {
            "role": self.role,
            "scopes": list(self.scopes),
            "models": None if self.models is None else list(self.models),
            **{name: getattr(self, name) for name in LIMITS},
            "created_at": wire(self.created_at),
            "expires_at": wire(self.expires_at),
            "expired": self.expired(now),
        }

    def stored(self) -> dict[str, Any]:
        """As its file keeps it: what is not said is not limited."""
        said = self.public(Instant(0))
        del said["expired"]
        return {key: value for key, value in said.items() if value is not None}

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Grant:
        """Of a token's file, of any version.  Raises ValueError, KeyError or TypeError for what is none."""
        limits = {name: body[name] for name in LIMITS if name in body}
        instants = {name: from_wire(body[name]) for name in ("created_at", "expires_at") if name in body}
        models = _names(body["models"]) if "models" in body else None
        scopes = _names(body["scopes"]) if "scopes" in body else SCOPES
        try:
            return cls(role=body["role"], scopes=scopes, models=models, **limits, **instants)
        except InvalidRequest as error:
            raise ValueError(error.message) from None


def _names(value: Sequence[str]) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"{value!r} is no list of names")
    return tuple(value)


def _check_models(models: tuple[str, ...] | None) -> None:
    if models is None:
        return
    if not models:
        raise InvalidRequest("a token that may ask no model at all: say `scopes: [jobs]` instead, or null for all models", field="models")  # fmt: skip
    for name in models:
        if not 0 < len(name) <= 200 or not name.isprintable() or "," in name:
            raise InvalidRequest(f"{name[:40]!r} is no name of a model; `tenure models` lists them", field="models")
