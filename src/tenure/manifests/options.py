"""tenure's own EngineOptions: what goes beyond Kueue, in a document beside the policy.  Without it nothing does.

apiVersion: tenure.dev/v1
kind: EngineOptions
spec:
  minRuntime: 5m
  reserveAfter: 30m
  ageing: {every: 1h, step: 10, most: 100}
  livelock: {takes: 3, within: 1h}
"""

from __future__ import annotations

from tenure.domain.options import Ageing, EngineOptions, LivelockRule

from .kinds import Header, Kind
from .scalars import Duration, Flag, Number
from .schema import Field, Object, Record

__all__ = ["ENGINE_OPTIONS", "OPTIONS_VERSION"]

OPTIONS_VERSION = "tenure.dev/v1"

_SPEC = Object(
    {
        "shrinkGangs": Flag(),
        "minRuntime": Duration(),
        "reserveAfter": Duration(),
        "ageing": Object(
            {
                "every": Field(Duration(), required=True),
                "step": Number(low=1),
                "most": Field(Number(low=1), required=True),
            }
        ),
        "livelock": Object(
            {"takes": Field(Number(low=2, high=1000), required=True), "within": Field(Duration(), required=True)}
        ),
    }
)


def _options(_: Header, record: Record) -> EngineOptions:
    spec = record.record("spec")
    ageing, livelock = spec.get("ageing"), spec.get("livelock")
    return EngineOptions(
        shrink_gangs=spec.get("shrinkGangs", True),
        reserve_after_us=_us(spec, "reserveAfter"),
        min_runtime_us=_us(spec, "minRuntime") or 0,
        ageing=ageing
        and Ageing(
            every_us=_us(ageing, "every", least=1.0) or 0,
            step=ageing.get("step") or 1,
            most=ageing.get("most") or 1,
        ),
        livelock=livelock
        and LivelockRule(
            takes=livelock.get("takes") or 2,
            within_us=_us(livelock, "within", least=1.0) or 0,
        ),
    )


def _us(record: Record, name: str, *, least: float = 0.0) -> int | None:
    """Microseconds; told where it is too short to mean anything."""
    seconds: float | None = record.get(name)
    if seconds is None:
        return None
    if seconds < least:
        record.at(name).error(f"is too short; at least {least:g}s would work")
    return round(seconds * 1_000_000)


ENGINE_OPTIONS = Kind(
    name="EngineOptions",
    versions=(OPTIONS_VERSION,),
    fields={"spec": Field(_SPEC, required=True)},
    build=_options,
    named=False,
)
