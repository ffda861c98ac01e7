"""Record: what the lines of a run directory mean together.

The rules, in the order in which they apply (docs/records.md tells them to people):

1. A run ends as `completed`, `failed`, `cancelled` or `interrupted`.  The first `closed` of the run or its supervisor
   decides; a later one that disagrees changes nothing, with two exceptions.  Exit code and signal are the supervisor's
   to know.  And a run that closed as anything but `completed` yields to its supervisor's word of how it was ended: the
   supervisor knows which stop took effect (a cancel marked while the run was on its way out, a time limit, a worker
   that raised because it was told to stop).  A run that closed as completed and was killed afterwards stays completed.
2. A `closed` of the reaper is a guess.  Any later word of the run or the supervisor supersedes it, and the record is
   `healed`: open again, or closed as they say.
3. A process that is told to stop hears SIGTERM and nothing else.  Who cancels marks the record first; on the way out the
   run is `cancelled` if a cancel mark is there and `interrupted` if not (`stop_outcome`).
4. A run that opens again in the same directory after it closed (`a.py && b.py` in one job) is open again.
5. In a gang (lines with a `rank`) only rank 0 closes, and its `completed` yields, too: the supervisor knows the others.

Reading never fails over what lines say: torn lines, invalid UTF-8, unknown kinds and wrong types are passed over, and
`damaged` counts the lines that were.
"""

from __future__ import annotations

from .lines import parse_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    class Phase(TypedDict):
        """`seconds` is None while it lasts, or where the run was killed inside it."""

        name: str
        begin_at: int
        seconds: float | None

    class Checkpoint(TypedDict):
        step: int
        at: int
        path: str
        sha256: str
        bytes: int

    class Artifact(TypedDict):
        name: str
        at: int
        path: str
        sha256: str
        bytes: int

    class Metric(TypedDict):
        """A summary: the last value and its step, and how often the name was logged."""

        last: object
        step: int | None
        count: int
        at: int

    class StopMark(TypedDict):
        stop: str
        reason: str
        message: str
        by: str
        at: int

    class Closed(TypedDict):
        by: str
        at: int
        reason: str
        message: str
        exit_code: int | None
        signal: int | None
        traceback: str


__all__ = ["Record"]

_RUNS_WORDS = frozenset(
    {
        "opened",
        "config",
        "code",
        "environment",
        "phase",
        "checkpoint",
        "result",
        "artifact",
        "alive",
        "member",
        "metric",
    }
)
_EVERY_LINES = frozenset({"v", "at", "kind", "seq", "step"})


class Record:
    """A run, folded from its lines.  Times are microseconds since the epoch, UTC; durations are seconds.

    `outcome` is None while the run is open.  `closed` says who closed it, when and why.  `retry_of` names the run that
    this one replaces, `parent` the run that started it, `members` what the other ranks of a gang said at their end.
    """

    __slots__ = (
        "argv", "artifacts", "attempt", "checkpoints", "closed", "code", "config", "damaged", "environment", "healed",
        "imported", "job_id", "last_sign_of_life", "lost_lines", "members", "metrics", "name", "opened_at", "outcome", "parent",
        "phases", "quiet_after_s", "rank", "reaped_at_signs", "results", "resumed_from", "retry_of", "run_id", "stops",
    )  # fmt: skip

    def __init__(self) -> None:
        self.run_id = ""
        self.name = ""
        self.job_id: str | None = None
        self.attempt: int | None = None
        self.retry_of: str | None = None
        self.parent: str | None = None
        self.argv: list[str] = []
        self.config: dict[str, object] = {}
        self.code: dict[str, object] = {}
        self.imported: dict[str, object] = {}
        self.environment: dict[str, object] = {}
        self.phases: list[Phase] = []
        self.checkpoints: list[Checkpoint] = []
        self.results: dict[str, object] = {}
        self.artifacts: list[Artifact] = []
        self.metrics: dict[str, Metric] = {}
        self.resumed_from: dict[str, object] | None = None  # step, at, path of the checkpoint it began from
        self.stops: list[StopMark] = []
        self.members: dict[int, dict[str, object]] = {}
        self.outcome: str | None = None
        self.closed: Closed | None = None
        self.rank: int | None = None  # of the process whose word closed it
        self.opened_at: int | None = None
        self.quiet_after_s: float | None = None
        self.last_sign_of_life: int | None = None
        self.reaped_at_signs: object = None  # what the reaper saw of the run's files when it gave up on it
        self.healed = False
        self.lost_lines = 0  # metrics and phases that a full disk cost
        self.damaged = 0

    @property
    def ended_at(self) -> int | None:
        return self.closed["at"] if self.closed else None

    @property
    def cancel_marked(self) -> bool:
        """Did somebody ask for the end, and not merely for the place?"""
        return any(mark["stop"] == "cancel" for mark in self.stops)

    def feed(self, line: dict[str, object]) -> None:
        """Fold one more line.  Never raises over what a line says."""
        try:
            self._feed(line)
        except (KeyError, TypeError, ValueError, AttributeError):
            self.damaged += 1

    def _feed(self, line: dict[str, object]) -> None:
        kind = line.get("kind")
        at = parse_time(line.get("at"))
        if at is None or not isinstance(kind, str):
            self.damaged += 1
            return
        if kind in _RUNS_WORDS:
            self._alive(at, line)
        fold = getattr(self, "_on_" + kind, None)
        if fold is not None:
            fold(line, at)

    def _alive(self, at: int, line: dict[str, object]) -> None:
        self.last_sign_of_life = max(at, self.last_sign_of_life or at)
        self._heal()

    def _heal(self) -> None:
        if self.closed is not None and self.closed["by"] == "reaper":
            self.healed, self.closed, self.outcome = True, None, None

    def _on_opened(self, line: dict[str, object], at: int) -> None:
        by_run = line.get("writer", "run") == "run"
        if self.closed is not None and self.closed["by"] == "run" and by_run and not line.get("rank"):
            self.closed, self.outcome = None, None
        self.opened_at = at if self.opened_at is None else min(at, self.opened_at)
        for field in ("run_id", "name", "job_id", "retry_of", "parent"):
            value = line.get(field)
            if isinstance(value, str) and (by_run or not getattr(self, field)):
                setattr(self, field, value)
        attempt, argv = line.get("attempt"), line.get("argv")
        self.attempt = attempt if isinstance(attempt, int) else self.attempt
        if isinstance(argv, list) and (argv and (by_run or not self.argv)):
            self.argv = [str(word) for word in argv]
        self.config.update(_object(line.get("config")))
        self.code.update(_object(line.get("code")))
        self.environment.update(_object(line.get("environment")))
        if by_run or "quiet_after_s" in line:
            self.quiet_after_s = _seconds(line.get("quiet_after_s"))

    def _on_config(self, line: dict[str, object], at: int) -> None:
        self.config.update(_object(line["values"]))

    def _on_environment(self, line: dict[str, object], at: int) -> None:
        self.environment.update(_object(line["values"]))

    def _on_code(self, line: dict[str, object], at: int) -> None:
        fingerprint = _object(line["fingerprint"])
        if fingerprint.get("kind") == "imported":
            self.imported = fingerprint
        else:
            self.code = fingerprint

    def _on_quiet_after(self, line: dict[str, object], at: int) -> None:
        self.quiet_after_s = _seconds(line.get("quiet_after_s"))

    def _on_resumed(self, line: dict[str, object], at: int) -> None:
        self.resumed_from = {"step": int(str(line["step"])), "at": at, "path": str(line["path"])}

    def _on_lost(self, line: dict[str, object], at: int) -> None:
        self.lost_lines += int(str(line["lines"]))

    def _on_phase(self, line: dict[str, object], at: int) -> None:
        name, seconds = str(line["name"]), _seconds(line.get("seconds"))
        if line["state"] == "begin":
            self.phases.append({"name": name, "begin_at": at, "seconds": None})
            return
        for phase in reversed(self.phases):
            if phase["name"] == name and phase["seconds"] is None:
                phase["seconds"] = seconds if seconds is not None else max(0, at - phase["begin_at"]) / 1e6
                return
        begin = at - int((seconds or 0.0) * 1e6)
        self.phases.append({"name": name, "begin_at": begin, "seconds": seconds or 0.0})  # its begin was torn

    def _on_checkpoint(self, line: dict[str, object], at: int) -> None:
        self.checkpoints.append(
            {"step": int(str(line["step"])), "at": at, "path": str(line["path"]), "sha256": str(line["sha256"]),
             "bytes": int(str(line["bytes"]))}
        )  # fmt: skip

    def _on_result(self, line: dict[str, object], at: int) -> None:
        self.results[str(line["name"])] = line.get("value")

    def _on_artifact(self, line: dict[str, object], at: int) -> None:
        self.artifacts.append(
            {"name": str(line["name"]), "at": at, "path": str(line["path"]), "sha256": str(line["sha256"]),
             "bytes": int(str(line["bytes"]))}
        )  # fmt: skip

    def _on_metric(self, line: dict[str, object], at: int) -> None:
        self.last_sign_of_life = max(at, self.last_sign_of_life or at)
        step = line.get("step")
        number = step if isinstance(step, int) else None
        for name, value in line.items():
            if name in _EVERY_LINES:
                continue
            metric = self.metrics.get(name)
            if metric is None:
                metric = self.metrics[name] = {"last": None, "step": None, "count": 0, "at": at}
            metric["last"], metric["step"], metric["at"] = value, number, at
            metric["count"] += 1

    def _on_member(self, line: dict[str, object], at: int) -> None:
        self.members[int(str(line["rank"]))] = {
            key: value for key, value in line.items() if key not in ("v", "kind", "rank", "seq")
        }

    def _on_stop_requested(self, line: dict[str, object], at: int) -> None:
        self.stops.append(
            {"stop": str(line["stop"]), "reason": str(line.get("reason", "")), "message": str(line.get("message", "")),
             "by": str(line.get("by", "")), "at": at}
        )  # fmt: skip

    def _on_closed(self, line: dict[str, object], at: int) -> None:
        outcome, by = line["outcome"], str(line.get("by", "run"))
        if outcome not in ("completed", "failed", "cancelled", "interrupted"):
            raise ValueError(outcome)
        exit_code, signal, rank = line.get("exit_code"), line.get("signal"), line.get("rank")
        if by == "reaper":
            self.reaped_at_signs = line.get("signs")
        word: Closed = {
            "by": by, "at": at, "reason": str(line.get("reason", "")), "message": str(line.get("message", "")),
            "exit_code": exit_code if isinstance(exit_code, int) else None,
            "signal": signal if isinstance(signal, int) else None, "traceback": str(line.get("traceback", "")),
        }  # fmt: skip
        if by != "reaper":
            self._alive(at, line)
        current = self.closed
        if current is None:
            self.closed, self.outcome = word, str(outcome)
            self.rank = rank if isinstance(rank, int) else None
        elif by == "supervisor":
            yields = self.outcome != "completed" or self.rank is not None
            if current["by"] == "run" and yields and outcome not in ("completed", self.outcome):
                for field in ("reason", "message", "traceback"):
                    word[field] = word[field] or current[field]
                self.closed, self.outcome, self.rank = word, str(outcome), None
                return
            if word["exit_code"] is not None:
                current["exit_code"], current["signal"] = word["exit_code"], word["signal"]
            current["reason"] = current["reason"] or (word["reason"] if outcome == self.outcome else "")


def _object(value: object) -> dict[str, object]:
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
