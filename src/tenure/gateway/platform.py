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
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from .allowance import Rights

__all__ = ["Platform"]

log = logging.getLogger("tenure.gateway")

POLL_S = 55.0  # the platform's bound is a minute
AGAIN_S, FAULT_S = 0.2, 2.0  # until the next try, where nobody answered, and after a fault of ours
KNOWN_S, UNKNOWN_S = 0.5, 1.0  # how long the word on a token is believed


class Platform:
    """`heard(models)` is called with every new table, in the loop's thread."""

    def __init__(self, socket: Path, heard: Callable[[list[dict[str, Any]]], None]) -> None:
        # Through the folder's descriptor the address stays short: `sun_path` ends at 107 bytes, and homes may be longer.
        self._folder = os.open(socket.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        connector = aiohttp.UnixConnector(path=f"/proc/self/fd/{self._folder}/{socket.name}", limit=8)
        timeout = aiohttp.ClientTimeout(total=POLL_S + 10)
        self._session = aiohttp.ClientSession(base_url="http://tenure", connector=connector, timeout=timeout)
        self._heard = heard
        self._tokens: dict[bytes, tuple[float, Rights | None]] = {}
        self._asking: dict[bytes, asyncio.Future[Rights | None]] = {}
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

    async def who(self, token: str) -> Rights | None:
        """Whose token it is, and what it may do.  The token itself stays here: its digest is asked about.

        Raises ClientError, OSError or TimeoutError where the platform does not answer.
        """
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        until, rights = self._tokens.get(digest, (0.0, None))
        if until > time.monotonic():
            return rights
        asking = self._asking.get(digest)
        if asking is None:  # many requests at once ask one question
            asking = self._asking[digest] = asyncio.ensure_future(self._ask(digest))
            asking.add_done_callback(lambda task: self._answered(digest, task))
        return await asyncio.shield(asking)

    def _answered(self, digest: bytes, task: asyncio.Future[Rights | None]) -> None:
        del self._asking[digest]
        if not task.cancelled():
            task.exception()  # seen, also where whoever asked has left

    async def _ask(self, digest: bytes) -> Rights | None:
        rights = None
        async with self._session.post("/api/v1/tokens:check", json={"sha256": digest.hex()}) as reply:
            if reply.status == 200:
                rights = _rights(await reply.json())
            elif reply.status != 404:
                reply.raise_for_status()
        if len(self._tokens) > 10_000:
            self._tokens.clear()
        self._tokens[digest] = (time.monotonic() + (KNOWN_S if rights else UNKNOWN_S), rights)
        return rights

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
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                log.debug("the platform does not answer: %s", error)
                self.version = 0  # it may be another one
                await asyncio.sleep(AGAIN_S)
            except Exception:
                log.exception("the table of models could not be taken in; it is asked for again")
                self.version = 0
                await asyncio.sleep(FAULT_S)


def _rights(said: Mapping[str, Any]) -> Rights:
    return Rights(
        name=said["name"],
        scopes=frozenset(said["scopes"]),
        models=None if said["models"] is None else tuple(said["models"]),
        requests_per_minute=said["requests_per_minute"],
        tokens_per_minute=said["tokens_per_minute"],
        tokens_per_day=said["tokens_per_day"],
        expires_at=None if said["expires_at"] is None else datetime.fromisoformat(said["expires_at"]).timestamp(),
    )
