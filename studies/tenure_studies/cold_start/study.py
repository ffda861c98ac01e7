"""The study: two models that differ in one thing, whether their caches are kept, woken in turn by a caller who waits.

What it knows comes from its own clock and from what the servers say of themselves.  A checkpoint follows each wake, so that
a run that was stopped goes on where it was.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import tenure

from . import plot
from .caller import Caller, Heard, NotAnswered
from .phases import PHASES, difference, order, split, spread
from .tables import csv_of, text_of

__all__ = ["Spec", "cold_start"]

CLOCK_MOVED_S = 0.05  # a wall clock that went further against the monotonic one was set, and tells no phases
TRIES = 3
ARMS = ("kept", "fresh")
WAITS = ("total", "first_byte", "warm_first_token")


@dataclass(frozen=True, kw_only=True)
class Spec:
    base_url: Annotated[str, "of an OpenAI-compatible door (default: OPENAI_BASE_URL)"] = ""
    kept: Annotated[str, "the model whose caches are kept"] = "cold-start-kept"
    fresh: Annotated[str, "the same model, but its caches begin empty each time"] = "cold-start-fresh"
    wakes: Annotated[int, "of each arm, beside the very first one, whose kept cache is still empty"] = 10
    prompt: Annotated[str, "what is asked"] = "What is the capital of France?"
    tokens: Annotated[int, "of the answer"] = 8
    seed: Annotated[int, "of the order and of the intervals"] = 0
    pause: Annotated[float, "seconds between both models' being asleep and the next wake"] = 1.0
    sleep_timeout: Annotated[float, "seconds within which a model has to fall asleep"] = 900.0
    wake_timeout: Annotated[float, "seconds without a word after which a wake is given up"] = 900.0

    def __post_init__(self) -> None:
        if self.wakes < 1:
            raise ValueError(f"wakes: {self.wakes} is less than 1")
        if self.tokens < 1:
            raise ValueError(f"tokens: {self.tokens} is less than 1")
        if self.kept == self.fresh:
            raise ValueError(f"kept, fresh: both are {self.kept!r}; two models are compared")

    def same_measurement(self) -> dict[str, object]:
        """What must not change when a run is resumed."""
        loose = ("base_url", "pause", "sleep_timeout", "wake_timeout")
        return {name: value for name, value in asdict(self).items() if name not in loose}


@tenure.study(keep=3)
def cold_start(run: tenure.Run, spec: Spec) -> dict[str, Any]:
    """Measure how long a cold caller waits for a model, phase by phase, with kept caches and without."""
    base_url = spec.base_url or os.environ.get("OPENAI_BASE_URL", "")
    if not base_url:
        raise ValueError("base_url: give --base-url or set OPENAI_BASE_URL, such as http://127.0.0.1:8000/v1")
    caller = Caller(base_url, key=os.environ.get("OPENAI_API_KEY"), patience_s=spec.wake_timeout)
    wakes, begun = _restored(run, spec)
    planned = order(spec.wakes, spec.seed)

    with run.phase("wakes"):
        for arm, number in planned:
            tries = [wake for wake in wakes if (wake["arm"], wake["number"]) == (arm, number)]
            # an interrupted or discarded first wake may have filled the cache: there is no second first one
            allowed = TRIES if number else 1
            while len(tries) < allowed and not any(wake["discarded"] is None for wake in tries):
                again = begun == [arm, number]
                if again and not number:
                    break
                begun = [arm, number]
                _keep(run, spec, wakes, begun)
                wake = _wake(caller, spec, arm, number)
                tries.append(wake)
                wakes.append(wake)
                begun = []
                _keep(run, spec, wakes, begun)
                _log(run, len(wakes), wake)

    found = summary(wakes, spec.seed)
    run.artifact("wakes.json", {"planned": planned, "wakes": wakes})
    run.artifact("wakes.csv", csv_of(wakes))
    run.artifact("phases.svg", plot.svg(wakes))
    run.artifact("table.txt", text_of(found))
    for arm in ARMS:
        if not found[arm]["total"]:
            reasons = sorted({wake["discarded"] for wake in wakes if wake["arm"] == arm and wake["discarded"]})
            raise RuntimeError(f"no wake of {arm} could be measured: {'; '.join(reasons)}")
    run.result(found)
    print(text_of(found), flush=True)
    return found


def summary(wakes: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    """What all wakes say together.  The first wake of `kept` stands apart; discarded ones are counted by their reason."""
    good = [wake for wake in wakes if wake["discarded"] is None]
    found: dict[str, Any] = {arm: {} for arm in (*ARMS, "kept_first", "difference")}
    for name in (*PHASES, *WAITS):
        columns = {
            arm: [_seconds(wake, name) for wake in good if wake["arm"] == arm and wake["number"] > 0] for arm in ARMS
        }
        for arm in ARMS:
            found[arm][name] = spread(columns[arm])
        found["difference"][name] = difference(columns["kept"], columns["fresh"], f"{seed}/{name}")
        found["kept_first"][name] = next((_seconds(wake, name) for wake in good if wake["number"] == 0), None)
    discarded = [str(wake["discarded"]).partition(":")[0] for wake in wakes if wake["discarded"] is not None]
    told = [wake for wake in good if any(seconds is not None for seconds in wake["phases"].values())]
    return found | {
        "measured": len(good),
        "discarded": {reason: discarded.count(reason) for reason in sorted(set(discarded))},
        "servers_tell_phases": len(told) == len(good) if good else None,
        "disbelieved": sorted({name for wake in good for name in wake["disbelieved"]}),
    }


def _wake(caller: Caller, spec: Spec, arm: str, number: int) -> dict[str, Any]:
    """One cold wait, and one warm one after it.  Raises NotAnswered where no later try could be answered."""
    model = spec.kept if arm == "kept" else spec.fresh
    for one in (spec.kept, spec.fresh):  # where one has to make room for the other, more than a cold start is measured
        caller.rest(one, spec.prompt, spec.sleep_timeout)
    time.sleep(spec.pause)
    wake: dict[str, Any] = {"arm": arm, "number": number, "model": model, "discarded": None, "asked_at": time.time()}
    try:
        heard = caller.ask(model, spec.prompt, tokens=spec.tokens)
        said = caller.phases(model)
        warm = caller.ask(model, spec.prompt, tokens=spec.tokens, leave=True)
    except NotAnswered as refused:
        if refused.fatal:
            raise
        time.sleep(refused.retry_after_s)
        return wake | _nothing() | {"discarded": f"not answered: {refused}"}
    return wake | _measured(heard, said) | {"warm_first_token_s": warm.first_token_s}


def _measured(heard: Heard, said: dict[str, Any] | None) -> dict[str, Any]:
    parts = split(heard.asked_at, heard.told_at, said)
    discarded = None
    if abs(heard.clock_moved_s) > CLOCK_MOVED_S:
        discarded = f"clock moved: by {heard.clock_moved_s:+.3f} s"
    elif "process_started_at" in parts.disbelieved:
        discarded = "not cold: its process was there before it was asked"
    return {
        "asked_at": heard.asked_at, "head_s": heard.head_s, "first_byte_s": heard.first_byte_s, "total_s": heard.first_token_s,
        "end_s": heard.end_s, "clock_moved_s": heard.clock_moved_s, "phases": parts.phases, "disbelieved": parts.disbelieved,
        "said": said, "discarded": discarded,
    }  # fmt: skip


def _nothing() -> dict[str, Any]:
    fields = ("head_s", "first_byte_s", "total_s", "end_s", "clock_moved_s", "warm_first_token_s", "said")
    return {**dict.fromkeys(fields), "phases": dict.fromkeys(PHASES), "disbelieved": []}


def _seconds(wake: dict[str, Any], name: str) -> float | None:
    value = wake["phases"][name] if name in PHASES else wake[f"{name}_s"]
    return None if value is None else float(value)


def _log(run: tenure.Run, step: int, wake: dict[str, Any]) -> None:
    said = wake["discarded"] or f"{wake['total_s']:.3f} s"
    print(f"{wake['arm']} {wake['number']}: {said}", file=sys.stderr, flush=True)
    if wake["discarded"] is not None:
        run.log(step=step, discarded=1)
        return
    seconds = {name: _seconds(wake, name) for name in (*PHASES, *WAITS)}
    run.log({f"{wake['arm']}/{name}": value for name, value in seconds.items() if value is not None}, step=step)


def _keep(run: tenure.Run, spec: Spec, wakes: list[dict[str, Any]], begun: list[Any]) -> None:
    state = {"spec": spec.same_measurement(), "wakes": wakes, "begun": begun}
    run.checkpoint(2 * len(wakes) + bool(begun), json.dumps(state))


def _restored(run: tenure.Run, spec: Spec) -> tuple[list[dict[str, Any]], list[Any]]:
    """The wakes so far, and the one that was interrupted.  Raises ValueError for a checkpoint of another measurement."""
    checkpoint = run.resume()
    if checkpoint is None:
        return [], []
    state = json.loads(checkpoint.read())
    if state["spec"] != spec.same_measurement():
        raise ValueError(f"the checkpoint is of another measurement: {state['spec']}, not {spec.same_measurement()}")
    return state["wakes"], state["begun"]
