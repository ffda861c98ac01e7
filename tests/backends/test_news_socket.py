"""The datagrams between supervisors and daemon: what they cost when the other side is busy, and who may send them."""

from __future__ import annotations

import os
import stat
import struct
import threading
import time
from pathlib import Path

import pytest

from tenure.backends.local import sockets
from tenure.backends.local.sockets import Mouth, bind_datagram


def test_whoever_waits_for_a_busy_listener_uses_no_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_PATIENCE", struct.pack("ll", 60, 0))  # a slow machine may be late to listen
    listener = bind_datagram(str(tmp_path / "news"))
    filler, mouth = bind_datagram(str(tmp_path / "other")), Mouth(str(tmp_path / "news"))
    try:
        queued = 0
        while True:
            try:
                filler.sendto(b"x", str(tmp_path / "news"))
                queued += 1
            except BlockingIOError:
                break
        reader = threading.Timer(0.5, lambda: [listener.recv(16) for _ in range(queued)])
        reader.start()
        began, used = time.monotonic(), time.thread_time()
        assert mouth.say(b"at last")
        waited, used = time.monotonic() - began, time.thread_time() - used
        reader.join()
        assert waited > 0.2
        assert used < waited / 4
        assert listener.recv(16) == b"at last"
    finally:
        mouth.close()
        listener.close()
        filler.close()


def test_a_mouth_reaches_whoever_listens_now(tmp_path: Path) -> None:
    mouth = Mouth(str(tmp_path / "news"))
    assert not mouth.say(b"nobody is there")
    for word in (b"one", b"another"):
        listener = bind_datagram(str(tmp_path / "news"))  # a daemon after the other, at the same place
        assert mouth.say(word)
        assert listener.recv(16) == word
        listener.close()
        assert not mouth.say(b"it has gone")
    mouth.close()


def test_a_socket_is_its_owners_alone_from_its_first_instant(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        bind_datagram(str(tmp_path / "news")).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "news").stat().st_mode) == 0o600
