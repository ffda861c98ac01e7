"""Who asks, and whether they may: another site's pages never, a token where one is needed, and within its limits.

A token is compared by the platform and known here by its name and rights alone; it reaches no log and no model server.
"""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

import aiohttp

from .allowance import Denied, Rights, allows, opens
from .answers import Refused, away
from .naming import Names
from .request import Request
from .uses import Uses

__all__ = ["Callers"]

Lookup = Callable[[str], Awaitable[Rights | None]]
AWAY = (aiohttp.ClientError, OSError, TimeoutError)


class Callers:
    """`lookup(token)` tells a token's rights, or None.  `token_needed`: nobody without one.

    Where none is needed, one that is known is held to its rights all the same, and any other is as good as none.
    """

    def __init__(
        self, lookup: Lookup, *, token_needed: bool, names: Names, uses: Uses, now: Callable[[], float] = time.time
    ) -> None:
        self._lookup, self._token_needed = lookup, token_needed
        self._names, self._uses, self._now = names, uses, now
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

    async def known(self, request: Request, headers: Mapping[bytes, bytes]) -> None:
        """Sets `who` and `rights`.  Raises 401, 403 for a token that is not for models, and 503 where nobody can tell."""
        presented = _presented(headers)
        if not presented:
            if self._token_needed:
                raise Refused(401, "missing_token", "this gateway needs a token: `Authorization: Bearer …` (`tenure token create NAME`)")  # fmt: skip
            return
        try:
            rights = await self._lookup(presented)
        except AWAY:
            if not self._token_needed:
                return
            raise away() from None
        if rights is None:
            if self._token_needed:
                request.fingerprint = _fingerprint(presented)
                raise Refused(401, "invalid_api_key", "this token is not one of this platform's; it may have been revoked")  # fmt: skip
            return
        request.who, request.rights = rights.name, rights
        secret = presented.encode("latin-1")
        request.scope["headers"] = [pair for pair in request.scope["headers"] if secret not in pair[1]]
        query = request.scope["query_string"]
        if secret in query:
            request.scope["query_string"] = b"&".join(pair for pair in query.split(b"&") if secret not in pair)
        _unless(opens(rights, self._now()))

    def may(self, request: Request) -> None:
        """The request names its model now; nothing of it has been held or sent.  Raises 403 and 429."""
        rights, now = request.rights, self._now()
        if rights is None:
            return
        _unless(allows(rights, self._names.id_of(request.asked_as), self._names.id_of, now))
        verdict = self._uses.admit(rights, now, request.expected.total)
        request.limits = self._uses.headers(rights, now)
        if isinstance(verdict, Denied):
            _unless(verdict)
        else:
            request.counted, request.aside = True, verdict

    def used(self, request: Request) -> None:
        """The request is over, however it ended.  Nothing for one that was never let in."""
        if request.counted:
            self._uses.settle(request.who, request.aside, request.cost(), self._now())


def _unless(denied: Denied | None) -> None:
    if denied is not None:
        raise Refused(
            denied.status, denied.code, denied.message, param=denied.param, retry_after_s=denied.retry_after_s, again=denied.again,
        )  # fmt: skip


def _fingerprint(token: str) -> str:
    """As the diary has it of one that was revoked: tells tokens apart, and opens nothing."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()[:8]


def _presented(headers: Mapping[bytes, bytes]) -> str:
    """OpenAI's header, or Anthropic's, or Azure's."""
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return (headers.get(b"x-api-key") or headers.get(b"api-key") or b"").decode("latin-1").strip()
