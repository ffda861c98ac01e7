"""Resource groups: the part that ClusterQueue and Cohort share, with every rule of Kueue's webhooks for it."""

from __future__ import annotations

from tenure.domain.amounts import MAX_AMOUNT, format_quantity, parse_decimal
from tenure.domain.policy import FlavorQuotas, Quota, ResourceGroup

from .scalars import AmountText, amount_at
from .schema import Field, ListOf, Object, Record
from .shapes import NAME, RESOURCE
from .spots import Items, Spot

__all__ = ["FAIR_SHARING", "RESOURCE_GROUPS", "fair_weight", "resource_groups"]

MAX_PER_QUEUE = 256
MAX_COMBINATIONS = 512

_QUOTA = Object(
    {
        "name": Field(RESOURCE, required=True),
        "nominalQuota": Field(AmountText(), required=True),
        "borrowingLimit": AmountText(),
        "lendingLimit": AmountText(),
    }
)
_FLAVOR = Object(
    {"name": Field(NAME, required=True), "resources": Field(ListOf(item=_QUOTA, low=1, high=64), required=True)}
)
_GROUP = Object(
    {
        "coveredResources": Field(ListOf(item=RESOURCE, low=1, high=64, unique=True), required=True),
        "flavors": Field(ListOf(item=_FLAVOR, low=1, high=64), required=True),
    }
)
RESOURCE_GROUPS = ListOf(item=_GROUP, high=16)
FAIR_SHARING = Object({"weight": AmountText()})


def resource_groups(owner: Record, *, joined: bool, join: str, capped: bool) -> tuple[ResourceGroup, ...]:
    """The groups of `owner.resourceGroups`.

    `joined`: the owner has a cohort (or parent), named by its field `join`; only then may limits be set.
    `capped`: a lending limit may not exceed the nominal quota (ClusterQueue; Kueue does not ask it of a Cohort).
    """
    groups = owner.get("resourceGroups")
    if groups is None:
        return ()
    _once(groups)
    return tuple(_group(g, joined=joined, join=join, capped=capped) for g in groups)


def _once(groups: Items) -> None:
    """A resource, and a flavor, belongs to one group of its owner; and Kueue's totals."""
    resources: dict[str, int] = {}
    flavors: dict[str, int] = {}
    for i, group in enumerate(groups):
        covered = group.get("coveredResources") or Items()
        for resource, at in zip(covered, covered.spots, strict=True):
            if resources.setdefault(resource, i) != i:
                at.error(
                    f"{resource} is already covered by resourceGroups[{resources[resource]}]; one group may cover it"
                )
        rows = group.get("flavors") or Items()
        here: set[str] = set()
        for row in rows:
            name = row.get("name")
            if name is None:
                continue
            if name in here:
                row.at("name").error(f'flavor "{name}" stands twice in this group; keep one')
            elif flavors.setdefault(name, i) != i:
                row.at("name").error(
                    f'flavor "{name}" is already in resourceGroups[{flavors[name]}]; one group may have it'
                )
            here.add(name)
        if len(covered) * len(rows) > MAX_COMBINATIONS:
            group.at("flavors").error(
                f"{len(rows)} flavors of {len(covered)} resources are {len(rows) * len(covered)} combinations; at most {MAX_COMBINATIONS}"
            )
        if len(resources) > MAX_PER_QUEUE or len(flavors) > MAX_PER_QUEUE:
            group.spot.error(f"more than {MAX_PER_QUEUE} flavors or resources in all")


def _group(group: Record, *, joined: bool, join: str, capped: bool) -> ResourceGroup:
    names_read = group.get("coveredResources")
    covered = tuple(names_read or ())
    comparable = names_read is not None and names_read.whole
    flavors = []
    for row in group.get("flavors") or ():
        quotas: dict[str, Quota] = {}
        for item in row.get("resources") or ():
            name = item.get("name")
            quota = _quota(item, name or "", joined=joined, join=join, capped=capped)
            if name is None:
                continue
            if name in quotas:
                item.at("name").error(f"{name} stands here twice")
            quotas[name] = quota
        names = tuple(quotas)
        if comparable and row.get("resources") is not None and row.get("resources").whole and names != covered:
            row.at("resources").error(
                f"must list {', '.join(covered)}: the names of coveredResources, all of them and in that order; got {', '.join(names) or 'none'}"
            )
        flavors.append(FlavorQuotas(flavor=row.get("name", ""), resources=quotas))
    return ResourceGroup(covered_resources=covered, flavors=tuple(flavors))


def _quota(item: Record, resource: str, *, joined: bool, join: str, capped: bool) -> Quota:
    nominal = _amount(item, "nominalQuota", resource)
    limits: dict[str, int | None] = {}
    for name in ("borrowingLimit", "lendingLimit"):
        limits[name] = _amount(item, name, resource)
        if item.given(name) and not joined:
            item.at(name).error(f"needs a cohort to borrow from or lend to; set {join}, or remove the limit")
    lending = limits["lendingLimit"]
    if capped and lending is not None and nominal is not None and lending > nominal:
        most = format_quantity(nominal, resource=resource)
        item.at("lendingLimit").error(f"is more than nominalQuota; at most {most} can be lent")
    return Quota(nominal=nominal or 0, borrowing_limit=limits["borrowingLimit"], lending_limit=lending)


def _amount(item: Record, name: str, resource: str) -> int | None:
    text = item.get(name)
    return None if text is None else amount_at(text, item.at(name), resource=resource)


def fair_weight(owner: Record) -> float:
    """`fairSharing.weight`: 1 unless given; at least 0, and above 1e-9 unless it is 0."""
    sharing = owner.record("fairSharing")
    text: str | None = sharing.get("weight")
    return 1.0 if text is None else weight_at(text, sharing.at("weight"))


def weight_at(text: str, spot: Spot) -> float:
    try:
        exact = parse_decimal(text)
    except ValueError as e:
        spot.error(str(e))
        return 1.0
    if exact > MAX_AMOUNT:
        spot.error(f"{text} is out of range; at most {MAX_AMOUNT}")
        return 1.0
    weight = float(exact)
    if weight < 0 or 0 < weight <= 1e-9:
        spot.error(f"{text} does not work as a weight; 0, or anything above 1e-9, would")
    return weight
