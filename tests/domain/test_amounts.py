"""Kubernetes quantities, as integers and back."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.domain.amounts import (
    MAX_AMOUNT,
    format_bytes,
    format_quantity,
    parse_bytes,
    parse_quantity,
    whole_amount,
)


@pytest.mark.parametrize(
    ("text", "resource", "value"),
    [
        ("1", "cpu", 1000),
        ("500m", "cpu", 500),
        ("1500m", "memory", 2),  # everything but cpu is rounded up to whole units
        ("10Gi", "tenure.dev/gpu-memory", 10 * 2**30),
        ("1e3", "memory", 1000),
        ("0.5", "cpu", 500),
        (".5Gi", "memory", 2**29),
        ("1k", "memory", 1000),
    ],
)
def test_quantities_are_read_as_kueue_reads_them(text: str, resource: str, value: int):
    assert parse_quantity(text, resource=resource) == value


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "10gb", "--1", "1Gi2", "∞"])
def test_what_is_no_quantity_is_refused_with_what_would_work(text: str):
    with pytest.raises(ValueError, match="such as"):
        parse_quantity(text)


@given(st.integers(min_value=0, max_value=2**62), st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]))
def test_what_is_written_reads_back(value: int, resource: str):
    assert parse_quantity(format_quantity(value, resource=resource), resource=resource) == value


@pytest.mark.parametrize(
    ("text", "value"), [("16Gi", 2**34), ("16GiB", 2**34), ("20G", 20 * 10**9), ("20GB", 20 * 10**9), ("512", 512)]
)
def test_bytes_are_read_as_people_type_them(text: str, value: int):
    assert parse_bytes(text) == value


def test_bytes_for_people():
    assert format_bytes(10 * 2**30) == "10 GiB"
    assert format_bytes(9 * 2**30 + 2**29) == "9.5 GiB"


@pytest.mark.parametrize("text", ["1e999999999", "1e99999999999999999999", "8Ei", "1" * 400, "１"])
def test_amounts_beyond_64_bits_are_refused_at_once(text: str):
    with pytest.raises(ValueError, match=r"out of range|such as"):
        parse_quantity(text)


def test_an_exact_amount_is_rounded_up_and_saturates():
    assert whole_amount(Decimal("0.0011"), resource="cpu") == 2
    assert whole_amount(Decimal("1e99999")) == MAX_AMOUNT + 1
    assert whole_amount(Decimal("-1e99999")) == -MAX_AMOUNT - 1
    assert whole_amount(Decimal("1e-99999")) == 1
