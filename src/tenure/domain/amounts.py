"""Kubernetes quantities as integers: `cpu` in milli-units, everything else in base units, rounded up.

Rule: Kueue stores `cpu` as milli-values and every other resource as `Quantity.Value()`, which rounds up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

__all__ = [
    "CPU",
    "GPU",
    "GPU_MEMORY",
    "MEMORY",
    "PODS",
    "format_bytes",
    "format_quantity",
    "parse_bytes",
    "parse_decimal",
    "parse_quantity",
    "whole_amount",
]

GPU = "nvidia.com/gpu"
GPU_MEMORY = "tenure.dev/gpu-memory"
CPU = "cpu"
MEMORY = "memory"
PODS = "pods"

_SUFFIX: Mapping[str, Decimal] = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9, "T": Decimal(10) ** 12, "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30, "Ti": Decimal(2) ** 40, "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]))?", re.ASCII)
MAX_AMOUNT = 2**63 - 1
"""Kubernetes keeps amounts in 64 bits; refusing more also keeps `1e999999999` from filling memory."""


def parse_decimal(text: str | int | float) -> Decimal:
    """The exact value of a Kubernetes quantity.  Raises ValueError with what would work."""
    raw = str(text).strip()
    match = _QUANTITY.fullmatch(raw)
    if match is None:
        raise ValueError(
            f"{raw!r} is not a quantity; write a number with an optional suffix, such as 2, 500m, 10Gi or 1e3"
        )
    number, exponent, suffix = match.groups()
    if len(raw) > 60 or len(exponent or "") > 5:
        raise ValueError(f"{raw[:60]!r} is out of range; no amount is beyond {MAX_AMOUNT}")
    return Decimal(number + (exponent or "")) * _SUFFIX[suffix or ""]


def parse_quantity(text: str | int | float, *, resource: str = "") -> int:
    """A quantity as the integer that quota arithmetic uses: milli for `cpu`, whole base units rounded up otherwise."""
    amount = whole_amount(parse_decimal(text), resource=resource)
    if abs(amount) > MAX_AMOUNT:
        raise ValueError(f"{str(text).strip()!r} is out of range; no amount is beyond {MAX_AMOUNT}")
    return amount


def whole_amount(value: Decimal, *, resource: str = "") -> int:
    """The integer for an exact amount, as in `parse_quantity`.  Beyond 64 bits: just more than any amount there is."""
    if resource == CPU:
        value *= 1000
    if abs(value) > MAX_AMOUNT:
        return MAX_AMOUNT + 1 if value > 0 else -MAX_AMOUNT - 1
    return int(value.to_integral_value(rounding=ROUND_CEILING))


def format_quantity(value: int, *, resource: str = "") -> str:
    """The shortest exact spelling of an amount, as Kubernetes writes it (`1500m`, `10Gi`, `8`)."""
    if resource == CPU:
        return str(value // 1000) if value % 1000 == 0 else f"{value}m"
    for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        unit = int(_SUFFIX[suffix])
        if value and value % unit == 0:
            return f"{value // unit}{suffix}"
    return str(value)


def parse_bytes(text: str | int) -> int:
    """Bytes from what people type: `16Gi`, `20G`, `20GB`, `512MiB`, or a plain number of bytes."""
    raw = str(text).strip().removesuffix("B").removesuffix("b")
    value = parse_quantity(raw)
    if value < 0:
        raise ValueError(f"{text!r} is negative; an amount of memory is at least 0")
    return value


def format_bytes(value: int) -> str:
    """Bytes for people: at most one decimal, binary units (`9.5 GiB`)."""
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if size == int(size) else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError
