"""The policy that a first start writes: the lab's, cut to the cards of this machine.  Users read and edit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template

from tenure.domain.amounts import GPU, GPU_MEMORY, format_quantity

__all__ = ["NO_CARD", "DefaultCard", "default_policy"]

NO_CARD = "card"
"""The flavor of a machine without a card: its quotas are 0, so GPU jobs wait and all others run."""

LARGE_MODEL_SHARES = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultCard:
    """All cards of one model together, or one of several entries of that model: shares and bytes are summed."""

    flavor: str
    shares: int
    memory: int


def default_policy(cards: Sequence[DefaultCard]) -> Mapping[str, str]:
    """File names and their texts.  They read back without problems, whatever the cards."""
    totals: dict[str, tuple[int, int]] = {}
    for card in cards:
        shares, memory = totals.get(card.flavor, (0, 0))
        totals[card.flavor] = (shares + card.shares, memory + card.memory)
    if not totals:
        totals[NO_CARD] = (0, 0)
    general = "\n".join(_row(name, shares, memory) for name, (shares, memory) in totals.items())
    large = "\n".join(
        _row(name, 0, 0, borrow=(min(LARGE_MODEL_SHARES, shares), memory)) for name, (shares, memory) in totals.items()
    )
    flavors = "---\n".join(_text("flavor.yaml.in").substitute(name=name) for name in totals).rstrip("\n")
    return {
        "00-configuration.yaml": _text("00-configuration.yaml").template,
        "10-flavors.yaml": _text("10-flavors.yaml.in").substitute(flavors=flavors),
        "20-cluster-queues.yaml": _text("20-cluster-queues.yaml.in").substitute(general=general, large_model=large),
        "30-queues.yaml": _text("30-queues.yaml").template,
        "40-priorities.yaml": _text("40-priorities.yaml").template,
    }


def _row(name: str, shares: int, memory: int, borrow: tuple[int, int] | None = None) -> str:
    lines = [f"    - name: {name}", "      resources:"]
    for i, (resource, nominal) in enumerate(((GPU, shares), (GPU_MEMORY, memory))):
        lines += [f"      - name: {resource}", f"        nominalQuota: {format_quantity(nominal)}"]
        if borrow is not None:
            why = "  # one model at a time" if resource == GPU else "  # and all the memory it may need"
            lines.append(f"        borrowingLimit: {format_quantity(borrow[i])}{why}")
    return "\n".join(lines)


def _text(name: str) -> Template:
    return Template(files(__package__).joinpath("defaults", name).read_text("utf-8"))
