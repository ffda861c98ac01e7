"""The way to a model server: one pool of connections, answers handed on as they come, never unpacked or packed anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import aiohttp
from yarl import URL

__all__ = ["GONE", "Upstream", "answer_headers", "request_headers"]

GONE = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, aiohttp.ClientOSError, aiohttp.ServerDisconnectedError, aiohttp.http_exceptions.HttpProcessingError, ConnectionError)  # fmt: skip
"""The server left: before a byte of its answer the request may be sent once more."""

_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
_OURS = _HOP | {b"host", b"authorization", b"proxy-authorization", b"cookie", b"accept-encoding", b"content-length", b"expect", b"x-tenure-wait", b"traceparent", b"x-api-key", b"api-key"}  # fmt: skip
"""Never passed on: what belongs to this connection alone, and everything that proves who the client is."""

_CONNECT_S = 5.0


def request_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """A client's headers for the server.  It is asked for plain bytes: what is packed cannot be handed on by chunk."""
    kept = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers if name not in _OURS]
    return [*kept, ("accept-encoding", "identity")]


def answer_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in headers if name.lower() not in _HOP]


class Upstream:
    """Belongs to the event loop that it is made in."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30, force_close=False),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            read_bufsize=256 * 1024,
        )

    async def send(
        self, method: str, port: int, target: str, headers: Iterable[tuple[str, str]], body: bytes
    ) -> aiohttp.ClientResponse:
        """The answer's head; its body is read by the caller, who closes it.  Raises one of GONE."""
        return await self._session.request(
            method,
            URL(f"http://127.0.0.1:{port}{target}", encoded=True),
            headers=list(headers),
            data=body or None,
            allow_redirects=False,
        )

    async def close(self) -> None:
        await self._session.close()


def content_type(headers: Mapping[str, str]) -> str:
    return headers.get("Content-Type", "").partition(";")[0].strip().lower()
