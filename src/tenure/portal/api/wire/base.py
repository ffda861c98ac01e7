"""What all shapes share: whether fields may be added, the words of a job, and how a refusal looks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Amount", "Loose", "Outcome", "Problem", "State", "Strict"]

State = Literal["queued", "admitted", "running", "evicting", "cancelling", "ended"]
Outcome = Literal["completed", "failed", "cancelled", "interrupted"]
Amount = Annotated[str | int, Field(examples=["8Gi", 8589934592])]


class Loose(BaseModel):
    """Fields may be added; a reader ignores what it does not know."""

    model_config = ConfigDict(extra="allow")


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Problem(Loose):
    """RFC 9457.  `code` is stable and for machines; `detail` says what, why and what would work."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:tenure:problem:NotFound",
                    "title": "Not Found",
                    "status": 404,
                    "detail": "there is no job 99",
                    "code": "NotFound",
                }
            ]
        },
    )

    type: str
    title: str
    status: int
    detail: str
    code: str
    field: str | None = Field(default=None, description="The part of the request that is wrong, where it is one.")
    problems: list[dict[str, Any]] | None = Field(default=None, description="All of them, where there may be several.")
