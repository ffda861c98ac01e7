"""Unix datagram sockets at paths of any length.

`sun_path` holds 108 bytes and homes are often longer; a descriptor of the directory makes every name short.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

__all__ = ["bind_datagram", "send_datagram"]


@contextlib.contextmanager
def _short(path: str) -> Iterator[str]:
    directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{os.path.basename(path)}"
    finally:
        os.close(directory)


def bind_datagram(path: str) -> socket.socket:
    """A datagram socket at `path` (0600), replacing what an earlier owner left there.  Non-blocking."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        with _short(path) as short:
            sock.bind(short)
        os.chmod(path, 0o600)
    except BaseException:
        sock.close()
        raise
    return sock


def send_datagram(path: str, data: bytes, *, timeout_s: float = 2.0) -> bool:
    """Hand `data` to whoever listens at `path`.  False where nobody does, or nobody read for `timeout_s`."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        sock.settimeout(timeout_s)
        with _short(path) as short:
            sock.sendto(data, short)
        return True
    except OSError:
        return False
    finally:
        sock.close()
