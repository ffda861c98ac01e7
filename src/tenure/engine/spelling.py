"""Amounts and names as Kueue spells them in its messages, and the fixed order in which it looks at resources."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from tenure.domain.amounts import CPU, GPU_MEMORY, MEMORY, format_quantity
from tenure.domain.ids import Instant

__all__ = ["resource_order", "spell", "spell_instant", "spell_span"]

_BINARY = frozenset({MEMORY, "ephemeral-storage", GPU_MEMORY})
_THOUSANDS = ("", "k", "M", "G", "T", "P", "E")


def spell(resource: str, amount: int) -> str:
    """The canonical Kubernetes quantity of an amount: `1500m`, `10Gi`, `12k`, `8`."""
    if resource in _BINARY or resource.startswith("hugepages-"):
        return format_quantity(amount) if abs(amount) >= 1024 else _decimal(amount)
    if resource == CPU:
        return f"{amount}m" if amount % 1000 else _decimal(amount // 1000)
    return _decimal(amount)


def _decimal(amount: int) -> str:
    power = 0
    while amount and amount % 1000 == 0 and power < len(_THOUSANDS) - 1:
        amount //= 1000
        power += 1
    return f"{amount}{_THOUSANDS[power]}"


@lru_cache(maxsize=4096)
def resource_order(name: str) -> tuple[int, str]:
    """Kueue walks resources by the FNV-1a hash of their names; it shows in which reasons are reported."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value, name


def spell_instant(at: Instant) -> str:
    """RFC 3339 in UTC, to the second."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def spell_span(us: int) -> str:
    """Microseconds as people say them, to the second: `5m`, `1h30m`, `40s`."""
    seconds = us // 1_000_000
    parts = ((seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s"))
    return "".join(f"{n}{unit}" for n, unit in parts if n) or "0s"
