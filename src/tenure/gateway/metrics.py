"""What the gateway counts, in Prometheus' text form.  Labels are names of declared models, never what a user wrote."""

from __future__ import annotations

from collections.abc import Iterable

from .policy import Desk

__all__ = ["exposition"]


def exposition(desk: Desk, models: Iterable[str]) -> bytes:
    names = list(models)
    lines = [
        "# HELP tenure_gateway_requests_in_flight Requests that a model is answering",
        "# TYPE tenure_gateway_requests_in_flight gauge",
        *(f'tenure_gateway_requests_in_flight{{model="{name}"}} {desk.flying(name)}' for name in names),
        "# HELP tenure_gateway_requests_held Requests that wait for a model",
        "# TYPE tenure_gateway_requests_held gauge",
        *(f'tenure_gateway_requests_held{{model="{name}"}} {desk.waiting(name)}' for name in names),
    ]
    return ("\n".join(lines) + "\n").encode()
