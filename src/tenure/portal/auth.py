"""Who is asking: peer credentials on the Unix socket, a bearer token or a page's cookie over TCP.

One raw ASGI layer in front of everything.  It also refuses what another web site sends through somebody's browser
(`Origin`, `Sec-Fetch-Site`) or through a name of its own that it points at this machine (`Host`: DNS rebinding).
Neither a token nor a cookie is ever logged, and no address carries one for longer than one redirect.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import pwd
import secrets
import socket
import struct
import threading
import time
from asyncio import Transport
from collections.abc import Collection
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tenure.control.caller import Caller
from tenure.domain.errors import Forbidden, TenureError

from .problems import respond
from .tokens import Token, TokenStore

__all__ = ["Gate", "PeerProtocol", "Sessions", "caller_of"]

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/version", "/login", "/openapi.json", "/favicon.ico"})
SESSION_S = 30 * 86400
CODE_S = 600
_UCRED = struct.Struct("3i")
_PAGES = ("/api/", "/metrics", "/static/")


class PeerProtocol(HttpToolsProtocol):
    """Puts the kernel's word on the peer of a Unix socket into the scope, as `tenure.peer`: (pid, uid, gid).

    Also `tenure.abort`, which cuts the connection without waiting for a client that takes nothing.
    """

    _peer: tuple[int, int, int] | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family == socket.AF_UNIX:
            pid, uid, gid = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
            self._peer = (pid, uid, gid)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["tenure.abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]
        if self._peer is not None:
            self.scope["tenure.peer"] = self._peer  # type: ignore[typeddict-unknown-key]


class Sessions:
    """Cookies for the pages, and the codes that a browser exchanges for one.

    A cookie is the token's name and an end, signed with the token's digest: it outlives a restart of the daemon and
    dies with its token.  A code works once, for ten minutes, and is kept in memory only.
    """

    def __init__(self, store: TokenStore) -> None:
        self.store = store
        self._codes: dict[str, tuple[str, float]] = {}
        self._one = threading.Lock()  # browsers come on several threads

    def issue_code(self, name: str) -> str:
        now, code = time.monotonic(), secrets.token_urlsafe(24)
        with self._one:
            self._codes = {code: kept for code, kept in self._codes.items() if kept[1] > now}
            self._codes[code] = (name, now + CODE_S)
        return code

    def exchange(self, presented: str) -> str | None:
        """The cookie for a code, which is spent by this, or for a token.  None for anything else."""
        with self._one:
            name, until = self._codes.pop(presented, ("", 0.0))
        token = self.store.named(name) if name and until > time.monotonic() else self.store.find(presented)
        if token is None or "jobs" not in token.grant.scopes:
            return None
        payload = f"{token.name}|{int(time.time()) + SESSION_S}"
        return f"{payload}|{_sign(token.digest, payload)}"

    def read(self, cookie: str) -> Caller | None:
        payload, _, signature = cookie.rpartition("|")
        name, _, until = payload.partition("|")
        token = self.store.named(name)
        if token is None:
            return None
        if not hmac.compare_digest(_sign(token.digest, payload).encode(), signature.encode("utf-8", "replace")):
            return None
        if int(until) < time.time():  # a number, since we have signed it
            return None
        return _token_caller(token)


def _sign(key: bytes, payload: str) -> str:
    return hmac.new(key, b"tenure-session:" + payload.encode(), hashlib.sha256).hexdigest()


def _token_caller(token: Token) -> Caller | None:
    """None for one that opens the gateway alone."""
    if "jobs" not in token.grant.scopes:
        return None
    user = _user_name(os.getuid()) if token.name == "operator" else token.name
    return Caller(user=user, uid=None, via="token", role="operator" if token.role == "operator" else "user")


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def caller_of(request: Request) -> Caller:
    """Who is asking.  Only meaningful behind the Gate, which lets nobody unknown this far."""
    caller = request.scope["tenure.caller"]
    assert isinstance(caller, Caller)
    return caller


class Gate:
    """The ASGI layer.  `allowed_uids` may use the Unix socket besides the daemon's own user and root."""

    def __init__(self, app: ASGIApp, *, sessions: Sessions, allowed_uids: Collection[int] = ()) -> None:
        self.app, self.sessions = app, sessions
        self._operators = {0, os.getuid()}
        self._allowed = frozenset(allowed_uids)
        self._callers: dict[int, Caller] = {}
        self._names = {"localhost", socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"only http is served, not {scope['type']}")
        try:
            caller = self._admit(scope)
        except _Refused as refused:
            await refused.answer(scope)(scope, receive, send)
            return
        scope["tenure.caller"] = caller
        await self.app(scope, receive, send)

    def _admit(self, scope: Scope) -> Caller | None:
        peer = scope.get("tenure.peer")
        if peer is not None:
            return self._peer(peer[1])
        headers = Headers(scope=scope)
        self._same_site(scope, headers)
        path: str = scope["path"]
        caller = self._bearer(headers) or self._cookie(scope, headers)
        if caller is None and path not in OPEN_PATHS and not path.startswith("/static/"):
            raise _Refused(
                Forbidden(
                    "this needs a token: send `Authorization: Bearer …`; the operator's is in $TENURE_HOME/tokens/operator",
                    code="Unauthenticated",
                ),
                401,
            )
        return caller

    def _peer(self, uid: int) -> Caller:
        known = self._callers.get(uid)
        if known is None:
            if uid in self._operators:
                known = Caller(user=_user_name(uid), uid=uid, via="socket", role="operator")
            elif uid in self._allowed:
                known = Caller(user=_user_name(uid), uid=uid, via="socket", role="user")
            else:
                raise _Refused(Forbidden(f"uid {uid} may not use this socket; its owner's uid may, and root"), 403)
            self._callers[uid] = known
        return known

    def _bearer(self, headers: Headers) -> Caller | None:
        scheme, _, presented = headers.get("authorization", "").partition(" ")
        if not presented:
            return None
        token = self.sessions.store.find(presented.strip()) if scheme.lower() == "bearer" else None
        if token is None:
            raise _Refused(
                Forbidden("this token is not one of this platform's; it may have been revoked", code="BadToken"), 401
            )
        caller = _token_caller(token)
        if caller is None:
            raise _Refused(
                Forbidden(
                    f"token {token.name!r} is for models only: ask the gateway (`tenure gateway url`), "
                    f"or an operator lets it in here with `tenure token set {token.name} --only both`",
                    code="ModelsOnly",
                ),
                403,
            )
        return caller

    def _cookie(self, scope: Scope, headers: Headers) -> Caller | None:
        raw = headers.get("cookie")
        if not raw:
            return None
        cookie = cookie_parser(raw).get(cookie_name(scope))
        return self.sessions.read(cookie) if cookie is not None else None

    def _same_site(self, scope: Scope, headers: Headers) -> None:
        """Raises for a request that a browser sends for somebody else's page."""
        host = headers.get("host", "")
        if not self._own_name(host, scope):
            raise _Refused(
                Forbidden(f"{host!r} is no name of this machine; use its address, or localhost", code="ForeignHost"),
                403,
            )
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise _Refused(Forbidden(f"pages of {origin} may not use this platform", code="ForeignOrigin"), 403)
        site = headers.get("sec-fetch-site", "none")
        following = headers.get("sec-fetch-mode") == "navigate" and scope["method"] == "GET"
        if site in ("cross-site", "same-site") and not (following and headers.get("sec-fetch-dest") == "document"):
            raise _Refused(Forbidden("another web site may not use this platform", code="ForeignOrigin"), 403)

    def _own_name(self, host: str, scope: Scope) -> bool:
        """An address cannot be rebound, a name can: so any address is fine, and only this machine's own names."""
        name = (urlsplit(f"//{host}").hostname or "").lower()
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._names
        return True


def cookie_name(scope: Scope) -> str:
    """Cookies do not keep ports apart, so the name does: two platforms on one machine do not log each other out."""
    return f"tenure_{(scope.get('server') or ('', 0))[1]}"


class _Refused(Exception):
    def __init__(self, error: TenureError, status: int) -> None:
        super().__init__(error.code)
        self.error, self.status = error, status

    def answer(self, scope: Scope) -> ASGIApp:
        """A page's reader is sent to the login page, anybody else gets the problem."""
        accept = Headers(scope=scope).get("accept", "")
        if self.status == 401 and "text/html" in accept and not scope["path"].startswith(_PAGES):
            from starlette.responses import RedirectResponse

            query = scope["query_string"].decode("latin-1")
            target = scope["path"] + (f"?{query}" if query else "")
            return RedirectResponse(f"/login?next={quote(target, safe='/')}", status_code=303)
        return respond(self.error, status=self.status)
