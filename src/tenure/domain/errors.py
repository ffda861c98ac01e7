"""Every error of the house, by what the caller should do about it.

TenureError
├── InvalidRequest          fix the request            (HTTP 400/422, exit 2)
│   ├── InvalidManifest     … in a file: file, document, field, line
│   └── NotFound            … it names something that does not exist          (404)
├── Conflict                the world moved, or the verb does not apply now   (409)
│   ├── IllegalTransition
│   └── StaleWrite          a writer that saw an older world; nothing changed
├── Forbidden               not yours to do            (401/403)
├── Unavailable             retry later                (503, exit 69)
├── LaunchError             an attempt could not be started: its reason, and whether a retry may help
└── HouseFault              a bug of ours: carries the story of events        (500)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "Conflict",
    "Forbidden",
    "HouseFault",
    "IllegalTransition",
    "InvalidManifest",
    "InvalidRequest",
    "LaunchError",
    "NotFound",
    "Problem",
    "StaleWrite",
    "TenureError",
    "Unavailable",
]


class TenureError(Exception):
    """The root.  `code` is stable and for machines; the text says what, why and what would work."""

    code = "TenureError"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code


class InvalidRequest(TenureError):
    """The request can never work as it is.  `field` names the part that is wrong, where there is one."""

    code = "InvalidRequest"

    def __init__(self, message: str, *, code: str | None = None, field: str | None = None) -> None:
        super().__init__(message, code=code)
        self.field = field


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong in one file.  `line` counts from 1; `document` from 1 within the file."""

    file: str
    document: int | None
    line: int | None
    field: str
    message: str
    severity: str = "error"  # or "warning": understood, named, and without effect here

    def __str__(self) -> str:
        where = self.file + (f":{self.line}" if self.line else "")
        doc = f" (document {self.document})" if self.document else ""
        field = f" {self.field}:" if self.field else ""
        mark = " warning:" if self.severity == "warning" else ""
        return f"{where}{doc}:{field}{mark} {self.message}"


class InvalidManifest(InvalidRequest):
    """One or more files could not be taken.  All problems are listed, not the first alone."""

    code = "InvalidManifest"

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(p) for p in problems))
        self.problems = tuple(problems)


class NotFound(InvalidRequest):
    """It names something that does not exist."""

    code = "NotFound"


class Conflict(TenureError):
    """The request is well formed, and the world is not (or no longer) as it assumes."""

    code = "Conflict"


class IllegalTransition(Conflict):
    """The lifecycle has no such arrow."""

    code = "IllegalTransition"

    def __init__(self, *, state: str, event: str, legal: Sequence[str]) -> None:
        allowed = ", ".join(legal) if legal else "nothing: it has ended"
        super().__init__(f"cannot {event} a job that is {state}; legal here: {allowed}")
        self.state, self.event, self.legal = state, event, tuple(legal)


class StaleWrite(Conflict):
    """A guarded write named a state, revision or attempt that is no longer there.  Nothing was changed."""

    code = "StaleWrite"


class Forbidden(TenureError):
    """The caller is not allowed to do this."""

    code = "Forbidden"


class Unavailable(TenureError):
    """Not now; the same request may work later."""

    code = "Unavailable"


class LaunchError(TenureError):
    """An attempt could not be started.  `exit_code` follows the shell (127 not found, 126 not executable)."""

    code = "LaunchError"

    def __init__(self, message: str, *, code: str | None = None, exit_code: int = 127) -> None:
        super().__init__(message, code=code)
        self.exit_code = exit_code


class HouseFault(TenureError):
    """An invariant of the house does not hold: a bug.  The message carries the story."""

    code = "HouseFault"
