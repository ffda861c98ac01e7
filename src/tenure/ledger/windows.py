"""Windows: claims of whole cards.  One row a window, each change guarded and beside its line in the diary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import bindparam, func, insert, select, update

from tenure.domain.errors import HouseFault, NotFound, StaleWrite
from tenure.domain.events import EventKind
from tenure.domain.ids import CardId, Instant, JobId
from tenure.domain.window import WINDOW_TRANSITIONS, WindowState

from .columns import Columns
from .diary import DiaryWriter
from .schema import is_live_window, windows
from .session import Session

__all__ = ["WINDOW_COLUMNS", "WINDOW_KINDS", "WindowReads", "WindowRow", "WindowWrites"]

WINDOW_COLUMNS = Columns(windows, enums={"state": WindowState})
WINDOW_KINDS = frozenset(
    {
        EventKind.WINDOW_CLAIMED,
        EventKind.WINDOW_DUE,
        EventKind.WINDOW_OPENED,
        EventKind.WINDOW_CHANGED,
        EventKind.WINDOW_ENDED,
    }
)
_CHANGEABLE = frozenset({"state", "reason", "message", "lease_us", "opened_at", "ends_at", "ended_at"})
_BY_ID = select(windows).where(windows.c.id == bindparam("which"))
_LIVE = select(windows).where(is_live_window).order_by(windows.c.seq)
_LAST = select(func.coalesce(func.max(windows.c.seq), 0))
_NEWEST = select(windows).order_by(windows.c.seq.desc()).limit(bindparam("limit"))


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRow:
    """A claim.  `length_us` counts from its opening; `lease_us`: how long its owner may be silent."""

    seq: int
    id: str
    card: CardId
    owner: str
    state: WindowState
    length_us: int
    claimed_at: Instant
    reason: str = ""
    message: str = ""
    job_id: JobId | None = None
    including_resident: bool = False
    lease_us: int | None = None
    begin_at: Instant | None = None
    opened_at: Instant | None = None
    ends_at: Instant | None = None
    ended_at: Instant | None = None


def _window(row: Any) -> WindowRow:
    return WindowRow(**WINDOW_COLUMNS.read(row))


class WindowReads(Session):
    """Questions about windows."""

    def find_window(self, id: str) -> WindowRow | None:
        row = self._row(_BY_ID, {"which": id})
        return None if row is None else _window(row)

    def window(self, id: str) -> WindowRow:
        """Raises NotFound."""
        found = self.find_window(id)
        if found is None:
            raise NotFound(f"there is no window {id}; `tenure window ls --all` lists those there were")
        return found

    def live_windows(self) -> list[WindowRow]:
        """All that have not ended, in the order of their claims."""
        return [_window(row) for row in self._rows(_LIVE)]

    def windows(self, *, limit: int = 100) -> list[WindowRow]:
        """The newest, newest first, whatever became of them."""
        return [_window(row) for row in self._rows(_NEWEST, {"limit": limit})]


class WindowWrites(WindowReads, DiaryWriter):
    """Claims and what becomes of them, inside a transaction."""

    def claim_window(
        self,
        *,
        card: CardId,
        owner: str,
        state: WindowState,
        length_us: int,
        at: Instant,
        message: str,
        job_id: JobId | None = None,
        including_resident: bool = False,
        lease_us: int | None = None,
        begin_at: Instant | None = None,
    ) -> WindowRow:
        """A new one, scheduled or waiting."""
        seq = int((self._row(_LAST) or (0,))[0]) + 1  # writers take turns, and no row ever goes
        values: dict[str, Any] = {
            "seq": seq, "id": f"w{seq}", "card": card, "owner": owner, "state": state, "length_us": length_us, "claimed_at": at,
            "message": message, "job_id": job_id, "including_resident": including_resident, "lease_us": lease_us, "begin_at": begin_at,
        }  # fmt: skip
        plain = {name: WINDOW_COLUMNS.plain(name, value) for name, value in values.items()}
        row = WindowRow(**WINDOW_COLUMNS.typed(dict(plain)))
        self._write(insert(windows), [asdict(row) | {"state": row.state.value}])
        self._tell(row, EventKind.WINDOW_CLAIMED, at, message, plain, {})
        return row

    def change_window(
        self,
        row: WindowRow,
        kind: EventKind,
        at: Instant,
        *,
        message: str,
        fields: Mapping[str, object],
        data: Mapping[str, object] | None = None,
    ) -> WindowRow:
        """The row as it is then.  Raises StaleWrite where its state is no longer the one that was seen."""
        unknown = set(fields) - _CHANGEABLE
        if unknown:
            raise HouseFault(f"{sorted(unknown)} of a window never change")
        plain = {n: WINDOW_COLUMNS.plain(n, v) for n, v in {"message": message, **fields}.items()}
        fresh = replace(row, **WINDOW_COLUMNS.typed(dict(plain)))
        if fresh.state is not row.state and fresh.state not in WINDOW_TRANSITIONS[row.state]:
            raise HouseFault(f"a window that is {row.state} does not become {fresh.state}")
        guard = (windows.c.id == bindparam("w_id")) & (windows.c.state == bindparam("w_state"))
        statement = update(windows).where(guard).values({n: bindparam("s_" + n) for n in plain})
        values = {"s_" + n: v for n, v in plain.items()} | {"w_id": row.id, "w_state": row.state.value}
        if not self._write(statement, [values]):
            raise StaleWrite(f"window {row.id} is no longer {row.state}; nothing was changed")
        self._tell(fresh, kind, at, message, plain, data or {})
        return fresh

    def _tell(
        self,
        row: WindowRow,
        kind: EventKind,
        at: Instant,
        message: str,
        changes: Mapping[str, object],
        data: Mapping[str, object],
    ) -> None:
        about = {"window": row.id, "card": row.card, "owner": row.owner, "job": row.job_id}
        self._note(kind, at, message=message, changes=changes, data={**about, **data})
