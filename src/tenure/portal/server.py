"""One server for both doors: a Unix socket for this machine's owner and TCP for tokens and browsers.

It runs in a thread of its own.  `start` returns when both sockets accept; `stop` ends every stream and returns when
the last answer is out.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import uvicorn
import uvloop

from tenure.control import verbs
from tenure.control.app import Platform
from tenure.control.caller import INTERNAL
from tenure.domain.errors import HouseFault

from . import address
from .app import build_app
from .auth import PeerProtocol, Sessions
from .metrics import Metrics
from .reception import Reception
from .sockets import listen_tcp, listen_unix
from .stream import News
from .tokens import OPERATOR, TokenStore, check_exposure, is_loopback

__all__ = ["Addresses", "PortalServer"]

LINGER_S = 1.0  # for answers that are on their way
GRACE_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where it listens.  `url` is what a browser on this machine opens."""

    socket: Path
    host: str
    port: int
    url: str


class PortalServer:
    """The portal of one platform.  Made once, started once."""

    def __init__(self, platform: Platform, *, allowed_uids: Collection[int] = ()) -> None:
        self.platform = platform
        self.addresses: Addresses | None = None
        self._allowed_uids = allowed_uids
        self._store = TokenStore(platform.settings.tokens_dir)
        self._sessions = Sessions(self._store)
        self._news = News(platform)
        self._metrics = Metrics(platform)
        self._reception = Reception(platform)
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._failed: BaseException | None = None

    def start(self) -> Addresses:
        """Listen and answer.  Raises Forbidden where a weak token would guard an open address, Unavailable for a taken one."""
        settings = self.platform.settings
        if is_loopback(settings.host):
            self._store.ensure_operator(partial(verbs.record_token, self.platform, caller=INTERNAL))
        check_exposure(settings.host, self._store)
        tcp = listen_tcp(settings.host, settings.port, preferred=address.last_port(settings.daemon_dir, "port"))
        try:
            unix = listen_unix(settings.api_socket)
        except BaseException:
            tcp.close()
            raise
        port = tcp.getsockname()[1]
        url = address.url_of(settings.host, port) + "/"
        self.addresses = Addresses(socket=settings.api_socket, host=settings.host, port=port, url=url)
        app = build_app(
            self.platform,
            news=self._news,
            metrics=self._metrics,
            reception=self._reception,
            sessions=self._sessions,
            login_url=self._login_url,
            allowed_uids=self._allowed_uids,
        )
        config = uvicorn.Config(
            app,
            http=PeerProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            proxy_headers=False,
            access_log=False,
            log_config=None,
            log_level="warning",
            server_header=False,
            date_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=GRACE_S,
        )
        self._server = _Server(config, self._news, self._reception, self._ready)
        self._metrics.start()
        self._thread = threading.Thread(target=self._run, args=([unix, tcp],), name="portal", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failed is not None:
            raise HouseFault(f"the portal did not start: {self._failed}") from self._failed
        said = {"socket": str(settings.api_socket), "host": settings.host, "port": port, "url": url}
        address.write(settings.daemon_dir, said)
        return self.addresses

    def stop(self) -> None:
        """Idempotent.  Nothing answers afterwards, and the socket's file is gone."""
        if self._server is None or self._thread is None:
            return
        self._server.end()
        self._thread.join(GRACE_S + 5)
        self._reception.close()
        self._metrics.stop()
        self.platform.settings.api_socket.unlink(missing_ok=True)

    def login_url(self) -> str:
        """An address that logs one browser in as the operator, once, within ten minutes."""
        return self._login_url(self._sessions.issue_code(OPERATOR))

    def _login_url(self, code: str) -> str:
        assert self.addresses is not None
        return f"{self.addresses.url}login?{urlencode({'token': code})}"

    def _run(self, listeners: list[socket.socket]) -> None:
        assert self._server is not None
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._server.serve(sockets=listeners))
        except BaseException as error:
            self._failed = error
        finally:
            self._ready.set()


class _Server(uvicorn.Server):
    """Begins to follow the diary before the first connection, and ends the streams before it waits for the last.

    It waits for its end, where uvicorn looks ten times a second: a platform at rest costs nothing.
    """

    def __init__(self, config: uvicorn.Config, news: News, reception: Reception, ready: threading.Event) -> None:
        super().__init__(config)
        self._news, self._reception, self._listening = news, reception, ready
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()

    def end(self) -> None:
        """From any thread."""
        self.should_exit = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._over.set)

    async def main_loop(self) -> None:
        while not self.should_exit:
            await self._over.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._news.open()
        await super().startup(sockets)
        self._listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._news.close()
        self._reception.end()
        asyncio.get_running_loop().call_later(LINGER_S, self._cut)
        await super().shutdown(sockets)

    def _cut(self) -> None:
        """Clients that still take nothing: their connections end here, and with them what waits to write."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()
