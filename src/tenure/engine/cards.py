"""Placing processes on cards: the last check, after quota.

A process goes to exactly one card that has room for its shares and its memory; the card with the least room left that
still fits is taken (best fit), so that large rooms stay whole.  A gang goes to one card if one holds all of it, else
it is spread; all of it or nothing.  Without cards nothing is checked and nothing is placed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tenure.domain.amounts import format_bytes
from tenure.domain.ids import CardId, WorkloadKey
from tenure.domain.workload import Card, Placement

__all__ = ["Cards", "NoPlace", "PlaceRequest", "shrunk"]


@dataclass(frozen=True, slots=True)
class PlaceRequest:
    """`count` processes of one pod set, each with its shares and bytes, on cards of one flavor."""

    pod_set: str
    count: int
    flavor: str
    shares: int
    memory: int
    whole_card: bool = False
    avoid: frozenset[CardId] = frozenset()


@dataclass(frozen=True, slots=True)
class NoPlace:
    """Quota is there and no card is: for which pod set, and how many of its processes found a place."""

    request: PlaceRequest
    placed: int
    cards: int
    out: int = 0  # cards of the flavor that take nothing new

    @property
    def message(self) -> str:
        return self._message + (f"; {self.out} more of it out of the pool" if self.out else "")

    @property
    def _message(self) -> str:
        r = self.request
        room = "all shares of a card free" if r.whole_card else f"{r.shares} share(s) and {format_bytes(r.memory)} free"
        if r.count == 1:
            return f"no card of flavor {r.flavor} has {room}; there are {self.cards}"
        return f"cards of flavor {r.flavor} have room for {self.placed} of {r.count} processes that need {room} each"


class Cards:
    """The cards and who holds what of them.  `known` is False where there is nothing to place on: no check then."""

    def __init__(self, cards: Sequence[Card]) -> None:
        self.cards: dict[CardId, Card] = {}
        self.held: dict[WorkloadKey, tuple[Placement, ...]] = {}
        self._shares: dict[CardId, int] = {}
        self._memory: dict[CardId, int] = {}
        self.replace(cards)

    @property
    def known(self) -> bool:
        return bool(self.cards)

    def replace(self, cards: Sequence[Card]) -> None:
        """Another set of cards.  What is held on a card that is gone stays on the books of its holder alone."""
        self.cards = {c.id: c for c in sorted(cards, key=lambda c: (c.index, c.id))}
        self._shares = {c.id: c.shares for c in self.cards.values()}
        self._memory = {c.id: c.memory for c in self.cards.values()}
        for placements in self.held.values():
            self._apply(placements, self._shares, self._memory, sign=-1)

    def hold(self, key: WorkloadKey, placements: tuple[Placement, ...]) -> None:
        if placements:
            self.held[key] = placements
            self._apply(placements, self._shares, self._memory, sign=-1)

    def free(self, key: WorkloadKey) -> None:
        self._apply(self.held.pop(key, ()), self._shares, self._memory, sign=1)

    def room(self, card: CardId) -> tuple[int, int]:
        """Shares and bytes that nobody holds."""
        return self._shares[card], self._memory[card]

    def whole_shares(self, flavor: str) -> int | None:
        """How many shares a whole card of this flavor has; the largest where they differ, None without cards."""
        return max((c.shares for c in self.cards.values() if c.flavor == flavor), default=None)

    def place(
        self, requests: Sequence[PlaceRequest], *, without: Iterable[tuple[Placement, ...]] = ()
    ) -> tuple[Placement, ...] | NoPlace:
        """A place for every process, or why there is none.  `without` are placements taken as already gone."""
        shares, memory = dict(self._shares), dict(self._memory)
        for placements in without:
            self._apply(placements, shares, memory, sign=1)
        found: list[Placement] = []
        for request in requests:
            chosen = self._place_one(request, shares, memory)
            if isinstance(chosen, NoPlace):
                return chosen
            self._apply(chosen, shares, memory, sign=-1)
            found.extend(chosen)
        return tuple(found)

    def _place_one(
        self, r: PlaceRequest, shares: Mapping[CardId, int], memory: Mapping[CardId, int]
    ) -> tuple[Placement, ...] | NoPlace:
        alike = [c for c in self.cards.values() if c.flavor == r.flavor]
        cards = [c for c in alike if not c.cordoned and c.id not in r.avoid]
        room = {c.id: _capacity(c, r, shares[c.id], memory[c.id]) for c in cards}
        whole = [c for c in cards if room[c.id] >= r.count]
        order = whole or [c for c in cards if room[c.id] > 0]
        if whole:  # the tightest card that holds all of it
            order.sort(key=lambda c: (shares[c.id], memory[c.id], c.index, c.id))
        else:  # the roomiest first, so that the gang touches as few cards as possible
            order.sort(key=lambda c: (-room[c.id], c.index, c.id))
        placements, rank = [], 0
        for card in order:
            take = min(room[card.id], r.count - rank)
            if take <= 0:
                break
            each = card.shares if r.whole_card else r.shares
            ranks = tuple(range(rank, rank + take))
            placements.append(
                Placement(card=card.id, pod_set=r.pod_set, ranks=ranks, shares=each * take, memory=r.memory * take)
            )
            rank += take
        return tuple(placements) if rank == r.count else NoPlace(r, rank, len(cards), sum(c.cordoned for c in alike))

    def _apply(
        self, placements: Iterable[Placement], shares: dict[CardId, int], memory: dict[CardId, int], *, sign: int
    ) -> None:
        for p in placements:
            if p.card in shares:
                shares[p.card] += sign * p.shares
                memory[p.card] += sign * p.memory


def _capacity(card: Card, r: PlaceRequest, shares: int, memory: int) -> int:
    """How many processes of this request the card has room for."""
    if r.whole_card:
        return 1 if shares == card.shares and memory >= r.memory else 0
    bounds = [free // each for free, each in ((shares, r.shares), (memory, r.memory)) if each > 0]
    return max(0, min(bounds)) if bounds else r.count


def shrunk(placements: tuple[Placement, ...], pod_set: str, count: int) -> tuple[Placement, ...]:
    """The placements of a gang whose processes with rank >= `count` have left."""
    kept = []
    for p in placements:
        if p.pod_set != pod_set:
            kept.append(p)
            continue
        ranks = tuple(r for r in p.ranks if r < count)
        if ranks:
            size = len(p.ranks)
            kept.append(
                Placement(
                    card=p.card, pod_set=pod_set, ranks=ranks,
                    shares=p.shares // size * len(ranks), memory=p.memory // size * len(ranks),
                )
            )  # fmt: skip
    return tuple(kept)
