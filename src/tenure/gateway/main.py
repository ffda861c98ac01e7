"""The gateway's process.  The platform's daemon starts it on a socket that it keeps, so that a gateway which dies loses
its requests and never its address.

It ends with the daemon: the pipe `--alive-fd` closes when that is gone, however it went.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn
import uvloop

from tenure.control.heap import give_back
from tenure.control.logfile import log_to
from tenure.settings import load

from .allowance import MINUTE
from .journal import Journal
from .platform import Platform
from .policy import Desk
from .protocol import Protocol
from .router import Gateway
from .upstream import Upstream
from .uses import Uses
from .words import Limits

__all__ = ["main"]

GRACE_S = 3


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn would raise them again at the end.  Waits, where uvicorn looks ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._over = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._over.set()

    async def main_loop(self) -> None:
        await self._over.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def main(argv: Sequence[str] | None = None) -> int:
    given = _arguments(argv)
    give_back()
    settings = load()
    log_to(settings.daemon_dir / "gateway.log")
    listener = socket.socket(fileno=given.fd)
    listener.setblocking(False)
    desk = Desk(Limits(held=given.held, hold_s=given.hold))
    journal = Journal(settings.home / "gateway" / "requests.jsonl")
    uses = Uses(settings.home / "gateway" / "use.json", minute=given.minute)
    gateway = Gateway(
        silence_s=settings.gateway_silence_s, desk=desk, journal=journal, uses=uses, token_needed=given.tokens
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(gateway, listener, settings.api_socket, given.alive_fd))
    return 0


async def _serve(gateway: Gateway, listener: socket.socket, api: Path, alive_fd: int | None) -> None:
    config = uvicorn.Config(
        gateway,
        http=Protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        proxy_headers=False,
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=GRACE_S,
        backlog=2048,
    )
    server = _Server(config)
    loop = asyncio.get_running_loop()

    def orphaned() -> None:
        assert alive_fd is not None
        loop.remove_reader(alive_fd)
        server.end()

    if alive_fd is not None:
        loop.add_reader(alive_fd, orphaned)
    gateway.opened(Platform(api, gateway.heard), Upstream())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.end)
    try:
        await server.serve(sockets=[listener])
    finally:
        if alive_fd is not None:
            loop.remove_reader(alive_fd)
        await gateway.closed()


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tenure gateway", allow_abbrev=False)
    parser.add_argument("--fd", type=int, required=True, help="a listening socket")
    parser.add_argument("--alive-fd", type=int, help="a pipe whose other end is the daemon's")
    parser.add_argument("--tokens", action="store_true", help="nobody without a token")
    parser.add_argument("--minute", type=float, default=MINUTE, help="of tokens' limits, in seconds")
    parser.add_argument("--held", type=int, default=Limits().held)
    parser.add_argument("--hold", type=float, default=Limits().hold_s)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
