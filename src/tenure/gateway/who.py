"""Who asks, and whether they may: another site's pages never, a token where one is needed.

A token is compared by the platform and known here by its name alone; it reaches no log and no model server.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

import aiohttp

from .answers import Refused
from .request import Request

__all__ = ["Callers"]

Lookup = Callable[[str], Awaitable[str | None]]


class Callers:
    """`lookup(token)` names a token's owner, or None.  `token_needed`: nobody without one."""

    def __init__(self, lookup: Lookup, *, token_needed: bool) -> None:
        self._lookup, self._token_needed = lookup, token_needed
        self._own_names = {"localhost", socket.gethostname().lower(), socket.getfqdn().lower()}

    def same_site(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse what a browser sends for somebody else's page, or under a name that is not this machine's."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = urlsplit(f"//{host}").hostname or ""
        if name and name not in self._own_names:
            try:
                ip_address(name)
            except ValueError:
                raise Refused(403, "foreign_host", f"{host!r} is no name of this machine; use its address, or localhost") from None  # fmt: skip
        origin = headers.get(b"origin")
        if origin is not None and urlsplit(origin.decode("latin-1")).netloc.lower() != host:
            raise Refused(403, "foreign_origin", "pages of another site may not use this gateway")
        if headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site"):
            raise Refused(403, "foreign_origin", "another site may not use this gateway")

    async def known(self, headers: Mapping[bytes, bytes]) -> str:
        """The name of the token; empty where none is needed.  Raises 401, and 503 where nobody can tell."""
        if not self._token_needed:
            return ""
        presented = _presented(headers)
        if not presented:
            raise Refused(401, "missing_token", "this gateway needs a token: `Authorization: Bearer …` (`tenure token create NAME`)")  # fmt: skip
        try:
            name = await self._lookup(presented)
        except (aiohttp.ClientError, OSError, TimeoutError):
            raise Refused(503, "platform_away", "the platform does not answer; try again", retry_after_s=2) from None
        if name is None:
            raise Refused(401, "invalid_api_key", "this token is not one of this platform's; it may have been revoked")
        return name

    def may(self, request: Request) -> None:
        """The request names its model now; nothing of it has been held or sent.  Raises 403 and 429."""

    def used(self, request: Request) -> None:
        """The request is over, however it ended; `request.line()` says what it cost."""


def _presented(headers: Mapping[bytes, bytes]) -> str:
    """OpenAI's header, or Anthropic's."""
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get(b"x-api-key", b"").decode("latin-1")
