"""What the gateway counts, in Prometheus' text form.  Labels are names of declared models, never what a user wrote.

Counting is an addition or two, because it stands in every request's way; the text is made when it is asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence

from .policy import Desk
from .request import Request

__all__ = ["Metrics"]

P = "tenure_gateway_"
LONG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
SHORT = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)


class _Histogram:
    __slots__ = ("_bounds", "_by", "help", "name")

    def __init__(self, name: str, help: str, bounds: Sequence[float]) -> None:
        self.name, self.help, self._bounds = P + name, help, bounds
        self._by: dict[str, tuple[list[int], list[float]]] = {}  # model -> (count for each bucket, [sum])

    def observe(self, model: str, seconds: float) -> None:
        found = self._by.get(model)
        if found is None:
            found = self._by[model] = ([0] * (len(self._bounds) + 1), [0.0])
        found[0][bisect_left(self._bounds, seconds)] += 1
        found[1][0] += seconds

    def lines(self) -> Iterable[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} histogram"
        for model, (counts, (total,)) in sorted(self._by.items()):
            label, so_far = f'model="{model}"', 0
            for bound, count in zip((*self._bounds, "+Inf"), counts, strict=True):
                so_far += count
                yield f'{self.name}_bucket{{{label},le="{bound}"}} {so_far}'
            yield f"{self.name}_sum{{{label}}} {total!r}"
            yield f"{self.name}_count{{{label}}} {so_far}"


class Metrics:
    """Of one gateway, since it started."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._duration = _Histogram("request_duration_seconds", "From a request's arrival until its answer was out", LONG)  # fmt: skip
        self._first = _Histogram("time_to_first_token_seconds", "From a request's arrival until the first byte of the model's answer", LONG)  # fmt: skip
        self._overhead = _Histogram("overhead_seconds", "From a request's arrival until it was sent to its model, without the time that it was held", SHORT)  # fmt: skip
        self._queue = _Histogram("queue_time_seconds", "How long a request was held; 0 for one that was not", LONG)
        self._requests: Counter[tuple[str, int]] = Counter()
        self._wakes: Counter[str] = Counter()
        self._refused: Counter[tuple[int, str]] = Counter()  # by our own codes

    def over(self, request: Request, *, now: float) -> None:
        """A request for inference has ended, however it did."""
        model = request.model
        self._requests[(model, request.status)] += 1
        self._duration.observe(model, now - request.arrived)
        self._queue.observe(model, request.held_s)
        if request.woke:
            self._wakes[model] += 1
        if request.first_byte_s is not None:
            self._first.observe(model, request.first_byte_s)
        if request.sent_at is not None:
            self._overhead.observe(model, max(0.0, request.sent_at - request.arrived - request.held_s))

    def refused(self, status: int, code: str) -> None:
        """An answer of ours, inference or not."""
        self._refused[(status, code)] += 1

    def text(self, models: Iterable[str]) -> bytes:
        names = sorted(models)
        lines = [*_family("in_flight_requests", "gauge", "Requests that a model is answering", ((f'model="{n}"', self._desk.flying(n)) for n in names))]  # fmt: skip
        lines += _family("held_requests", "gauge", "Requests that wait for a model", ((f'model="{n}"', self._desk.waiting(n)) for n in names))  # fmt: skip
        lines += _family("wakes_total", "counter", "Requests that woke a model", ((f'model="{n}"', self._wakes[n]) for n in names))  # fmt: skip
        counts = sorted(self._requests.items())
        lines += _family("requests_total", "counter", "Requests for inference that have ended, by the status that the client saw", ((f'model="{n}",status="{s}"', c) for (n, s), c in counts))  # fmt: skip
        refused = sorted(self._refused.items())
        lines += _family("refused_total", "counter", "Requests that the gateway itself refused, by status and code", ((f'status="{s}",code="{code}"', c) for (s, code), c in refused))  # fmt: skip
        for histogram in (self._duration, self._first, self._overhead, self._queue):
            lines += histogram.lines()
        return ("\n".join(lines) + "\n").encode()


def _family(name: str, kind: str, help: str, series: Iterable[tuple[str, int]]) -> Iterable[str]:
    yield f"# HELP {P}{name} {help}"
    yield f"# TYPE {P}{name} {kind}"
    for labels, value in series:
        yield f"{P}{name}{{{labels}}} {value}"
