"""Unix datagram sockets at paths of any length.

`sun_path` holds 108 bytes and homes are often longer; a descriptor of the directory makes every name short.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator

__all__ = ["Mouth", "bind_datagram", "send_datagram"]


_PATIENCE = struct.pack("ll", 2, 0)  # struct timeval, seconds and microseconds


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
        os.fchmod(sock.fileno(), 0o600)  # what `bind` makes has the mode of the socket
        with _short(path) as short:
            try:
                sock.bind(short)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                os.unlink(path)
                sock.bind(short)
    except BaseException:
        sock.close()
        raise
    return sock


def send_datagram(path: str, data: bytes) -> bool:
    """Hand `data` to whoever listens at `path`.  False where nobody does, or nobody read for two seconds."""
    mouth = Mouth(path)
    try:
        return mouth.say(data)
    finally:
        mouth.close()


class Mouth:
    """Says one thing after the other to whoever listens at `path` at that moment."""

    def __init__(self, path: str) -> None:
        self._directory, self._name = os.path.split(path)
        self._sock: socket.socket | None = None
        self._fd = -1

    def say(self, data: bytes) -> bool:
        """False where nobody listens, or nobody read for two seconds."""
        try:
            if self._sock is None:
                self._open()
            assert self._sock is not None
            self._sock.sendto(data, f"/proc/self/fd/{self._fd}/{self._name}")
        except OSError:
            self.close()  # the directory may be another one by now
            return False
        return True

    def _open(self) -> None:
        self._fd = os.open(self._directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        # The kernel waits, not we: a datagram socket without a peer always counts as writable, so that a time-out of
        # Python's own would ask again and again for as long as the other side's queue (ten datagrams) is full.
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _PATIENCE)

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
        if self._fd >= 0:
            os.close(self._fd)
        self._sock, self._fd = None, -1
