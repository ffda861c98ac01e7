"""Where the portal listens: a Unix socket that nobody else can open, at any length of path, and a TCP socket."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from pathlib import Path

from tenure.domain.errors import Unavailable

__all__ = ["listen_tcp", "listen_unix"]


def listen_unix(path: Path) -> socket.socket:
    """Bind `path`, replacing a socket that a dead daemon left.  Mode 0600 from the first instant, folder 0700.

    The kernel takes the mode of the new file from the socket's own inode, so setting it before binding leaves no
    moment in which the file is open to others, and no process-wide umask is touched.  Binding through the folder's
    descriptor keeps the address short: `sun_path` ends at 107 bytes, and homes may be longer.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(folder, 0o700)
        os.fchmod(sock.fileno(), 0o600)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=folder)
        sock.bind(f"/proc/self/fd/{folder}/{path.name}")
        sock.listen(1024)
    except OSError as error:
        sock.close()
        raise Unavailable(f"cannot listen on {path}: {error.strerror}", code="AddressUnavailable") from error
    finally:
        os.close(folder)
    sock.setblocking(False)
    return sock


def listen_tcp(host: str, port: int, *, preferred: int | None = None, settings: str = "TENURE") -> socket.socket:
    """Bind `host:port`.  With port 0, `preferred` (the last one used) is tried before any free one.

    `settings` begins the names of the two settings that decide it.  Raises Unavailable, which says which one to mend.
    """
    for candidate in [preferred, 0] if port == 0 and preferred else [port]:
        try:
            infos = socket.getaddrinfo(host, candidate or 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, proto, _, address = infos[0]
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no name of a machine"
            raise Unavailable(
                f"cannot listen on {host}: {why}; {settings}_HOST takes a name or an address of this machine, such as 127.0.0.1",
                code="AddressUnavailable",
            ) from error
        sock = socket.socket(family, kind, proto)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(1024)
        except OSError as error:
            sock.close()
            if candidate == preferred and port == 0:
                continue
            raise Unavailable(
                f"cannot listen on {host}:{candidate}: {error.strerror}; {_remedy(error.errno, settings)}",
                code="AddressUnavailable",
            ) from error
        sock.setblocking(False)
        return sock
    raise AssertionError("a free port is always tried")


def _remedy(number: int | None, settings: str) -> str:
    if number == errno.EADDRNOTAVAIL:
        return f"{settings}_HOST takes an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all that it has"
    return f"{settings}_PORT=0 takes any free port"
