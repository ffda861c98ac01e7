"""The cards of this machine: found through NVML or declared by hand.  `monitor` watches them.

Nothing here raises because of a card: no driver is a reason.  A declared card is never mistaken for a measured one: its
id says `declared-N` and `measured` is False wherever it shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tenure.domain.amounts import parse_bytes
from tenure.domain.errors import InvalidRequest
from tenure.domain.workload import Card

from .nvml import FoundCard, Nvml, NvmlUnavailable

__all__ = ["DEFAULT_SHARES", "Discovery", "FoundCard", "declared", "discover", "flavor_name", "to_card"]

DEFAULT_SHARES = 8
MAX_SHARES = 1024
MAX_CARDS = 64
LEAST_MEMORY = 1 << 20  # `8x16` is 16 bytes, and nobody means that


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What was found.  `reason` says why there is no card, or which ones were left out and why; empty = all is well."""

    cards: tuple[FoundCard, ...] = ()
    reason: str = ""


def discover() -> Discovery:
    """Ask NVML for the cards, in its order (PCI bus).  Cards in MIG mode are left alone, and named in the reason."""
    try:
        nvml = Nvml.open()
    except NvmlUnavailable as error:
        return Discovery(reason=str(error))
    cards: list[FoundCard] = []
    left_out: list[str] = []
    with nvml:
        try:
            for index, handle, problem in nvml.handles():
                if handle is None:
                    left_out.append(f"card {index} does not answer: {problem}")
                    continue
                try:
                    card = nvml.describe(index, handle)
                    if nvml.in_mig_mode(handle):
                        left_out.append(f"card {index} ({card.uuid}) is in MIG mode and is left alone")
                    else:
                        cards.append(card)
                except nvml.errors as error:
                    left_out.append(f"card {index} does not answer: {error}")
        except nvml.errors as error:
            left_out.append(f"NVML does not count its cards: {error}")
    if not cards and not left_out:
        left_out.append("the NVIDIA driver is loaded and reports no card")
    return Discovery(cards=tuple(cards), reason="; ".join(left_out))


def flavor_name(model: str) -> str:
    """The model as a Kubernetes name: `NVIDIA H200 (fake)` -> `nvidia-h200-fake`.  At most 63 characters."""
    name = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")
    return name[:63].rstrip("-") or "card"


_DECLARED = re.compile(r"(?:(?P<cards>\d+)x)?(?P<shares>\d+)x(?P<memory>[^x]+)", re.IGNORECASE)


def declared(texts: str | Iterable[str]) -> list[FoundCard]:
    """The cards that `--card` flags declare: `8x16Gi` is one with eight shares and 16 GiB, `2x8x24Gi` two alike.

    Several flags declare several cards; ids count on through all of them.  Raises InvalidRequest.
    """
    cards: list[FoundCard] = []
    for text in [texts] if isinstance(texts, str) else texts:
        count, shares, memory = _parse_declared(text)
        for _ in range(count):
            index = len(cards)
            cards.append(
                FoundCard(
                    uuid=f"declared-{index}",
                    index=index,
                    name="declared card",
                    memory=memory,
                    measured=False,
                    shares=shares,
                )
            )
    if len(cards) > MAX_CARDS:
        raise InvalidRequest(f"{len(cards)} cards are declared; one machine has at most {MAX_CARDS}", field="card")
    return cards


def _parse_declared(text: str) -> tuple[int, int, int]:
    """(cards, shares, bytes) of one flag."""
    form = "write SHARESxMEMORY, such as 8x16Gi, or CARDSxSHARESxMEMORY, such as 2x8x24Gi"

    def refuse(why: str) -> InvalidRequest:
        return InvalidRequest(f"--card {text!r}: {why}; {form}", field="card")

    match = _DECLARED.fullmatch("".join(text.split()))
    if match is None:
        raise refuse("this is not a card")
    count, shares = int(match["cards"] or 1), int(match["shares"])
    try:
        memory = parse_bytes(match["memory"])
    except ValueError as error:
        raise refuse(str(error)) from None
    if not 1 <= count <= MAX_CARDS:
        raise refuse(f"the number of cards is 1 to {MAX_CARDS}, not {count}")
    if not 1 <= shares <= MAX_SHARES:
        raise refuse(f"a card has 1 to {MAX_SHARES} shares, not {shares}")
    if memory < LEAST_MEMORY:
        raise refuse(f"{match['memory']} is only {memory} bytes; a unit may be missing")
    return count, shares, memory


def to_card(
    card: FoundCard, *, shares: int = DEFAULT_SHARES, flavor: str | None = None, cordoned: bool = False
) -> Card:
    """The card as the engine places on it.  A declared card keeps its own shares; memory leaves out the driver's part."""
    return Card(
        id=card.id,
        flavor=flavor or flavor_name(card.name),
        shares=card.shares or shares,
        memory=card.usable_memory,
        index=card.index,
        cordoned=cordoned,
    )
