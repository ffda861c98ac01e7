"""Finding what an id names: one job, or every task of an array."""

from __future__ import annotations

from tenure.domain.errors import Forbidden, NotFound
from tenure.ledger import JobRow, Ledger

from .caller import Caller

__all__ = ["owned", "rows_of"]


def rows_of(ledger: Ledger, name: str) -> tuple[list[JobRow], bool]:
    """The rows, and whether the id names an array.  Raises NotFound."""
    row = ledger.find_job(name)
    if row is not None:
        return [row], False
    tasks = ledger.array(name)
    if tasks:
        return tasks, True
    raise NotFound(f"there is no job {name}; `tenure ps -a` lists the jobs there are")


def owned(rows: list[JobRow], caller: Caller) -> list[JobRow]:
    """Raises Forbidden where the caller may not change them."""
    for row in rows:
        if not caller.may_change(row.owner):
            raise Forbidden(f"job {row.id} belongs to {row.owner}; only its owner or an operator may change it")
    return rows
