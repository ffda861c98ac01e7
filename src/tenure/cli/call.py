"""One call of one verb: its words, its way to the platform, and the ids that people write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tenure.settings import Settings

from .client import Client, job_path
from .grammar import Parsed, Usage, Verb

__all__ = ["Call"]

FIRST_PAGE, PAGE = 20, 1000  # of jobs, while the newest are looked for: most who ask want the very last one


@dataclass(slots=True)
class Call:
    """What a verb's `run(call)` is given."""

    name: str
    verb: Verb
    parsed: Parsed
    settings: Settings
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = Client(self.settings)

    @property
    def form(self) -> str:
        """table, wide, json, yaml or name."""
        return self.parsed.text("format") or "table"

    @property
    def structured(self) -> bool:
        return self.form in ("json", "yaml")

    @property
    def ids(self) -> list[str]:
        """The job ids among the positionals, with `@`, `@~1` and `last` made real."""
        return [self.job_id(word) for word in self.parsed.positionals]

    def job_id(self, word: str) -> str:
        """`@` and `last` are the newest job (an array counts as one), `@~1` the one before.  Raises Usage."""
        if word in ("@", "last"):
            back = 0
        elif word.startswith("@~"):
            if not word[2:].isdecimal():
                raise Usage(f"{word!r}: write @ for the newest job, @~1 for the one before")
            back = int(word[2:])
        else:
            return word
        newest = self._newest(back + 1)
        if back >= len(newest):
            raise Usage(
                f"{word!r}: there are only {len(newest)} jobs" if newest else f"{word!r}: there are no jobs yet"
            )
        return newest[back]

    def _newest(self, wanted: int) -> list[str]:
        """The base ids of so many of the newest jobs, newest first.  Numbers only grow, and a page begins with the newest."""
        found: dict[str, None] = {}
        cursor: str | None = None
        while True:
            page = self.client.get("/jobs", all=True, limit=PAGE if cursor else FIRST_PAGE, cursor=cursor)
            for job in page["items"]:
                found[str(job.get("array_id") or job["id"]).partition("_")[0]] = None
            cursor = page.get("next")
            if not cursor or len(found) >= wanted:
                return list(found)[:wanted]

    def show(self, job: str) -> Any:
        return self.client.get(job_path(job))
