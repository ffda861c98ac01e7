"""The gateway's line to the platform: REST over its Unix socket.  The table of models comes in, what was seen goes out."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

__all__ = ["Platform"]

log = logging.getLogger("tenure.gateway")

POLL_S = 20.0
AGAIN_S = 0.2  # after a failure
KNOWN_S, UNKNOWN_S = 5.0, 1.0  # how long the word on a token is believed


class Platform:
    """`heard(models)` is called with every new table, in the loop's thread."""

    def __init__(self, socket: Path, heard: Callable[[list[dict[str, Any]]], None]) -> None:
        # Through the folder's descriptor the address stays short: `sun_path` ends at 107 bytes, and homes may be longer.
        self._folder = os.open(socket.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        connector = aiohttp.UnixConnector(path=f"/proc/self/fd/{self._folder}/{socket.name}", limit=8)
        timeout = aiohttp.ClientTimeout(total=POLL_S + 10)
        self._session = aiohttp.ClientSession(base_url="http://tenure", connector=connector, timeout=timeout)
        self._heard = heard
        self._tokens: dict[bytes, tuple[float, str | None]] = {}
        self.version = 0
        self.known = asyncio.Event()  # the first table has come
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._session.close()
        os.close(self._folder)

    async def wake(self, model: str, *, cause: str, by: str) -> None:
        await self._post(f"/models/{quote(model, safe='')}:wake", {"cause": cause, "by": by, "insist": False})

    async def sleep(self, model: str, *, cause: str) -> None:
        await self._post(f"/models/{quote(model, safe='')}:sleep", {"cause": cause, "by": "the gateway"})

    async def report(self, seen: Mapping[str, Any]) -> bool:
        return await self._post("/models:report", seen)

    async def who(self, token: str) -> str | None:
        """Whose token it is, or None.  The token itself stays here: its digest is asked about."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        now = time.monotonic()
        until, name = self._tokens.get(digest, (0.0, None))
        if until > now:
            return name
        async with self._session.post("/api/v1/tokens:check", json={"sha256": digest.hex()}) as reply:
            name = str((await reply.json())["name"]) if reply.status == 200 else None
        if len(self._tokens) > 10_000:
            self._tokens.clear()
        self._tokens[digest] = (now + (KNOWN_S if name else UNKNOWN_S), name)
        return name

    async def _post(self, path: str, body: Mapping[str, Any]) -> bool:
        """True if it was taken; what went wrong is logged, and what matters is asked for again by the policy."""
        try:
            async with self._session.post(f"/api/v1{path}", json=body) as reply:
                if reply.status < 300:
                    return True
                problem = json.loads(await reply.read() or b"{}")
                log.warning("%s: %s %s", path, reply.status, problem.get("detail"))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            log.warning("%s: the platform does not answer: %s", path, error)
        return False

    async def _watch(self) -> None:
        while True:
            try:
                query = {"after": str(self.version), "timeout": str(POLL_S)}
                async with self._session.get("/api/v1/models:watch", params=query) as reply:
                    reply.raise_for_status()
                    table = await reply.json()
                again = table["version"] == self.version
                self.version = int(table["version"])
                if not again or not self.known.is_set():
                    self._heard(table["models"])
                    self.known.set()
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError) as error:
                log.debug("the platform does not answer: %s", error)
                self.version = 0  # it may be another one
                await asyncio.sleep(AGAIN_S)
