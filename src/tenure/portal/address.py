"""Where the daemon says that it listens: `daemon/address.json`, for `tenure` and for the daemon that comes next."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["last_port", "read", "url_of", "write"]

NAME = "address.json"


def read(folder: Path) -> dict[str, Any]:
    """What was said last; nothing where that cannot be read."""
    try:
        said = json.loads((folder / NAME).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def write(folder: Path, said: Mapping[str, Any]) -> None:
    """Whole or not at all.  Raises OSError."""
    fresh = folder / f"{NAME}.{os.getpid()}"
    fresh.write_text(json.dumps(said) + "\n", "utf-8")
    fresh.replace(folder / NAME)


def last_port(folder: Path, key: str) -> int | None:
    """The port of the daemon before, so that an open page and a client's base URL find the next one."""
    port = read(folder).get(key)
    return port if isinstance(port, int) and 0 < port < 65536 else None


def url_of(host: str, port: int) -> str:
    """For somebody on this machine, without a path: a host that stands for all addresses becomes the loopback's."""
    name = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
