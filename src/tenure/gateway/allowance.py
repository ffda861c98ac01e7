"""What a token may ask, and how much: rights, a rate of requests and of model tokens, a budget a day.  Pure: `now` is told.

Promises: of a limit of N requests a minute never more than N begin within any minute, however many come at once; a
refused request costs nothing; a request costs its one place when it arrives, and its model tokens when it is over.  What
it is expected to cost is set aside for it meanwhile, or all that is left where that is less, and nobody is let in on what
is set aside: however many come at once, a limit on tokens is exceeded by no more than what they cost beyond what was
expected of them, and what the last of them costs beyond what was left.  `now` is wall time in seconds since the epoch,
because use outlives a restart; what is set aside does not.  Where that clock is set back, what lies ahead of it is forgotten within a minute's
limit and kept within a day's; never is anybody locked out for longer than a minute or a day says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

__all__ = ["MINUTE", "Allowances", "Denied", "Headers", "Rights", "allows", "grantable", "opens"]

MINUTE, DAY = 60.0, 86_400
ASIDE_S = 2.0  # when to try again where all that is left is set aside: requests on their way end at no known time
DAYS_KEPT = 3  # so that a clock which jumps a day ahead and back finds its day again
TENTHS = 10  # requests of one tenth of a second share an entry: a minute is at most 601 of them

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What the platform says of one token.  None: no limit."""

    name: str
    scopes: frozenset[str] = frozenset({"models"})
    models: tuple[str, ...] | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None
    expires_at: float | None = None

    def __post_init__(self) -> None:
        assert self.name, "rights without a name would be nobody's"


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """`again`: waiting helps, and a client may try by itself."""

    status: int
    code: str
    message: str
    param: str | None = None
    retry_after_s: float | None = None
    again: bool = True


@dataclass(slots=True)
class _Use:
    """Of one token: entries (tenth of a second, requests, tokens) of the last minute, oldest first, and sums by day."""

    recent: deque[list[int]] = field(default_factory=deque)
    days: dict[int, list[int]] = field(default_factory=dict)
    requests: int = 0
    tokens: int = 0
    aside: int = 0  # model tokens, for requests on their way

    def add(self, now: float, requests: int, tokens: int) -> None:
        tenth = int(now * TENTHS)
        if not self.recent or self.recent[-1][0] < tenth:
            self.recent.append([tenth, 0, 0])
        for sums in (self.recent[-1], self.days.setdefault(int(now // DAY), [0, 0])):
            sums[-2] += requests
            sums[-1] += tokens
        self.requests += requests
        self.tokens += tokens
        while len(self.days) > DAYS_KEPT:
            del self.days[min(self.days)]

    def forget(self, now: float, minute: float) -> None:
        """What is older than a minute, and what a clock that was set back has put into the future."""
        while self.recent and self.recent[0][0] + 1 <= (now - minute) * TENTHS:
            self._drop(self.recent.popleft())
        while self.recent and self.recent[-1][0] > (now + 1) * TENTHS:
            self._drop(self.recent.pop())

    def _drop(self, entry: list[int]) -> None:
        self.requests -= entry[1]
        self.tokens -= entry[2]

    def today(self, now: float) -> list[int]:
        return self.days.get(int(now // DAY), [0, 0])


class Allowances:
    """The use of every token.  `minute` is how long one lasts, in seconds."""

    def __init__(self, minute: float = MINUTE) -> None:
        self._minute = minute
        self._uses: dict[str, _Use] = {}

    def admit(self, rights: Rights, now: float, expected: int = 0) -> Denied | int:
        """One request arrives: it is refused, or counted; then how many of the model tokens that are `expected` of it are
        set aside for it, which `settle` takes back."""
        use = self._of(rights.name, now)
        denied = self._budget(rights, use, now) or self._rate(rights, use, now) or self._aside(rights, use, now)
        if denied is not None:
            return denied
        use.add(now, 1, 0)
        aside = min([expected, *(left for _, left in self._left(rights, use, now))])
        use.aside += aside
        return aside

    def settle(self, name: str, aside: int, tokens: int, now: float) -> None:
        """A request is over, and has cost so many model tokens instead of what was set aside for it."""
        use = self._of(name, now)
        use.aside -= aside
        if tokens:
            use.add(now, 0, tokens)

    def headers(self, rights: Rights, now: float) -> Headers:
        """How the token stands, as OpenAI says it; only of limits that it has."""
        use = self._of(rights.name, now)
        said: Headers = []
        for kind, at, limit, used in (
            (b"requests", 1, rights.requests_per_minute, use.requests),
            (b"tokens", 2, rights.tokens_per_minute, use.tokens + use.aside),
        ):
            if limit is not None:
                newest = next((entry[0] for entry in reversed(use.recent) if entry[at]), None)
                reset = 0.0 if newest is None else max(0.0, self._leaves(newest) - now)
                said += [
                    (b"x-ratelimit-limit-" + kind, b"%d" % limit),
                    (b"x-ratelimit-remaining-" + kind, b"%d" % max(0, limit - used)),
                    (b"x-ratelimit-reset-" + kind, _span(reset).encode()),
                ]
        return said

    def kept(self, now: float) -> dict[str, Any]:
        """All of it, as JSON keeps it: `restore` takes it, and pages read it.  A token that nobody uses is forgotten here."""
        tokens, oldest = {}, int(now // DAY) - DAYS_KEPT
        for name in list(self._uses):
            use = self._of(name, now)
            if max(use.days, default=0) <= oldest and not use.recent and not use.aside:
                del self._uses[name]
                continue
            tokens[name] = {"minute": list(use.recent), "days": {str(day): sums for day, sums in use.days.items()}}
        return {"v": 1, "tokens": tokens}

    def restore(self, kept: Mapping[str, Any], now: float) -> None:
        """What an earlier gateway kept.  Raises ValueError, TypeError, KeyError or AttributeError for something else."""
        oldest = int(now // DAY) - DAYS_KEPT
        for name, said in kept["tokens"].items():
            recent = deque([int(a), int(b), int(c)] for a, b, c in said["minute"])
            days = {int(day): [int(a), int(b)] for day, (a, b) in said["days"].items() if int(day) > oldest}
            use = _Use(recent=recent, days=days, requests=sum(e[1] for e in recent), tokens=sum(e[2] for e in recent))
            if days:
                self._uses[name] = use

    def _of(self, name: str, now: float) -> _Use:
        use = self._uses.setdefault(name, _Use())
        use.forget(now, self._minute)
        return use

    def _budget(self, rights: Rights, use: _Use, now: float) -> Denied | None:
        limit, (_, used) = rights.tokens_per_day, use.today(now)
        if limit is None or used < limit:
            return None
        renews = (now // DAY + 1) * DAY
        text = (
            f"token {rights.name!r} has used {used:,} of the {limit:,} model tokens that it has a day; that renews at "
            f"{datetime.fromtimestamp(renews, UTC):%Y-%m-%dT%H:%M:%SZ}, or an operator raises it: "
            f"`tenure token set {rights.name} --tokens-per-day N`"
        )
        return Denied(status=429, code="insufficient_quota", message=text, retry_after_s=renews - now, again=False)

    def _rate(self, rights: Rights, use: _Use, now: float) -> Denied | None:
        for what, at, limit, used in (
            ("requests", 1, rights.requests_per_minute, use.requests),
            ("tokens", 2, rights.tokens_per_minute, use.tokens),
        ):
            if limit is None or used < limit:
                continue
            wait = self._room(use, at, used, limit) - now
            text = (
                f"token {rights.name!r} has used its {limit:,} {'model ' * (what == 'tokens')}{what} a minute; try again in "
                f"{_span(wait)}, or an operator raises it: `tenure token set {rights.name} --{what}-per-minute N`"
            )
            return Denied(status=429, code="rate_limit_exceeded", message=text, retry_after_s=wait)
        return None

    def _left(self, rights: Rights, use: _Use, now: float) -> list[tuple[str, int]]:
        """Of each limit on model tokens, what is neither used nor set aside."""
        limits = (
            ("a minute", rights.tokens_per_minute, use.tokens),
            ("a day", rights.tokens_per_day, use.today(now)[1]),
        )
        return [(of, limit - used - use.aside) for of, limit, used in limits if limit is not None]

    def _aside(self, rights: Rights, use: _Use, now: float) -> Denied | None:
        for of, left in self._left(rights, use, now):
            if left <= 0:
                text = (
                    f"what is left of the model tokens that token {rights.name!r} has {of} is set aside for its requests on their "
                    f"way; try again when one has ended, or let them say a smaller `max_tokens`"
                )
                return Denied(status=429, code="rate_limit_exceeded", message=text, retry_after_s=ASIDE_S)
        return None

    def _room(self, use: _Use, at: int, used: int, limit: int) -> float:
        """When so much will have left the minute that there is room for one."""
        for entry in use.recent:
            used -= entry[at]
            if used < limit:
                return self._leaves(entry[0])
        raise AssertionError("entries and their sum disagree")

    def _leaves(self, tenth: int) -> float:
        return (tenth + 1) / TENTHS + self._minute


def allows(rights: Rights, wanted: str, id_of: Callable[[str], str], now: float) -> Denied | None:
    """May it ask for `wanted`, one of the ids of `/v1/models`?  `id_of` turns a name or an alias into such an id."""
    denied = opens(rights, now)
    if denied is None and rights.models is not None and wanted not in {id_of(name) for name in rights.models}:
        text = (
            f"token {rights.name!r} may ask {', '.join(rights.models)}, and not {wanted}; an operator adds it: "
            f"`tenure token set {rights.name} --models {','.join((*rights.models, wanted))}`"
        )
        denied = Denied(status=403, code="model_not_allowed", message=text, param="model")
    return denied


def opens(rights: Rights, now: float) -> Denied | None:
    """May it ask here at all?"""
    if rights.expires_at is not None and rights.expires_at <= now:
        text = (
            f"token {rights.name!r} expired at {datetime.fromtimestamp(rights.expires_at, UTC):%Y-%m-%dT%H:%M:%SZ}; "
            f"an operator renews it: `tenure token set {rights.name} --expires 30d`"
        )
        return Denied(status=401, code="expired_token", message=text)
    if "models" not in rights.scopes:
        text = f"token {rights.name!r} is not for models; an operator lets it in: `tenure token set {rights.name} --only both`"
        return Denied(status=403, code="model_not_allowed", message=text)
    return None


def grantable(rights: Rights | None, names: Iterable[str], id_of: Callable[[str], str]) -> list[str]:
    """Those of `names` that it may ask; without rights everybody may ask everything."""
    if rights is None or rights.models is None:
        return list(names)
    granted = {id_of(name) for name in rights.models}
    return [name for name in names if id_of(name) in granted]


def _span(seconds: float) -> str:
    """As OpenAI writes it: `120ms`, `12.4s`, `1m30s`."""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))}ms" if seconds > 0 else "0s"
    minutes, rest = divmod(round(seconds, 1), 60)
    text = f"{rest:.1f}".removesuffix(".0") + "s"
    return f"{int(minutes)}m{text}" if minutes else text
