"""Work that the program does itself, without the platform; its refusals sound as the platform's would."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .client import Refused

__all__ = ["refusals"]


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Errors of the house become `Refused`, with the status that the API would have answered."""
    from tenure.domain.errors import HouseFault, InvalidManifest, InvalidRequest, NotFound, TenureError, Unavailable

    try:
        yield
    except InvalidManifest as error:
        raise Refused(422, {"detail": str(error), "code": error.code}) from None
    except NotFound as error:
        raise Refused(404, {"detail": error.message, "code": error.code}) from None
    except InvalidRequest as error:
        raise Refused(422, {"detail": error.message, "code": error.code, "field": error.field}) from None
    except Unavailable as error:
        raise Refused(503, {"detail": error.message, "code": error.code}) from None
    except HouseFault:
        raise
    except TenureError as error:
        raise Refused(409, {"detail": error.message, "code": error.code}) from None
