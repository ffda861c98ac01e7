"""A word that was missed is found by asking.

A backend tells its news by itself, and almost always at once.  Where an answer is owed and none came for a while (a start
that nobody reported, a stop that nothing followed), the vigil asks for the truth, and asks again for the stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.domain.attempt import AttemptState
from tenure.domain.ids import RunId
from tenure.domain.lifecycle import JobState

if TYPE_CHECKING:
    from .conductor import Conductor
    from .live import Live

__all__ = ["look"]

OWED_AFTER_US = 2_000_000
OWES = frozenset({JobState.ADMITTED, JobState.EVICTING, JobState.CANCELLING})
DEAF = frozenset({AttemptState.STARTING, AttemptState.RUNNING})


def look(conductor: Conductor) -> None:
    """One look, from a thread of its own.  What it finds goes through the inbox, as all news does."""
    now = conductor.clock.steady()
    with conductor.lock:
        owing: dict[RunId, Live] = {
            live.current_run: live
            for live in conductor.live.values()
            if live.state in OWES and live.launched and now - live.asked_at > OWED_AFTER_US
        }
    if not owing:
        return
    seen = conductor.backend.observe([(run, str(conductor.driver.run_dir(run))) for run in owing])
    for run, observation in seen.items():
        live = owing[run]
        conductor.heard(observation)
        if live.state is not JobState.ADMITTED and observation.state in DEAF:
            conductor.changed(live.id)  # asked to stop, and running as if nobody had
        elif observation.state is AttemptState.ABSENT:
            conductor.nothing_there(live.id)
