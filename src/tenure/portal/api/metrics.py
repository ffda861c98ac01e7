"""`/metrics`, outside `/api/v1`, where Prometheus looks for it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from tenure.portal.metrics import Metrics

from .context import problems

__all__ = ["router"]

router = APIRouter(tags=["health"])


async def _metrics(request: Request) -> Metrics:
    metrics = request.app.state.metrics
    assert isinstance(metrics, Metrics)
    return metrics


@router.get("/metrics", operation_id="metrics", summary="Prometheus metrics, in Kueue's names", response_model=None, responses={200: {"content": {"text/plain": {}}}, **problems()})  # fmt: skip
def metrics(metrics: Annotated[Metrics, Depends(_metrics)]) -> Response:
    return Response(metrics.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")
