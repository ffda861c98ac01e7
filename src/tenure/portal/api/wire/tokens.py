"""Tokens on the wire: what one may do, and how much of that is used."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from .base import Loose, Strict

__all__ = ["ChangeToken", "CheckToken", "CreatedToken", "NewToken", "TokenLimits", "TokenRow", "TokenUse"]

_Limit = Annotated[int | None, Field(ge=1, le=10**12)]
_Scope = Literal["jobs", "models"]


class TokenLimits(Strict):
    """What a token may do.  null: no limit."""

    scopes: list[_Scope] = Field(
        default=["jobs", "models"], min_length=1, description="`jobs`: this API and the pages; `models`: the gateway."
    )
    models: list[str] | None = Field(
        default=None, min_length=1, description="Names, aliases or adapters; null: all.", examples=[["assistant"]]
    )
    requests_per_minute: _Limit = None
    tokens_per_minute: _Limit = Field(default=None, description="Model tokens: prompts and answers together.")
    tokens_per_day: _Limit = Field(default=None, description="The budget of a day in UTC.")
    expires: str | None = Field(
        default=None, description="A time from now, or RFC 3339.", examples=["30d", "2026-12-31T00:00:00Z"]
    )


_NAME = re.compile(r"^[a-z0-9][a-z0-9._-]{0,62}$")


def _named(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(
            "a token is named by small letters, digits, '.', '_' and '-', at most 63, of which the first is a letter or a digit"
        )
    return text


class NewToken(TokenLimits):
    name: Annotated[str, AfterValidator(_named), Field(json_schema_extra={"pattern": _NAME.pattern}, examples=["ci"])]
    role: Literal["operator", "user"] = "user"


class ChangeToken(TokenLimits):
    """Only what is said changes; null takes a limit away."""


class TokenUse(Loose):
    """What the gateway answered to it, or is answering."""

    requests_last_minute: int
    tokens_last_minute: int
    requests_today: int
    tokens_today: int
    renews_at: datetime = Field(description="When the day ends.")


class TokenRow(Loose):
    name: str
    role: Literal["operator", "user"]
    scopes: list[_Scope]
    models: list[str] | None
    requests_per_minute: int | None
    tokens_per_minute: int | None
    tokens_per_day: int | None
    created_at: datetime | None
    expires_at: datetime | None
    expired: bool
    use: TokenUse
    notes: list[str] = Field(default=[])


class CreatedToken(TokenRow):
    token: str = Field(description="The secret: said this once.")


class CheckToken(Strict):
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
