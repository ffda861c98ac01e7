"""A port's listener is known by its socket, and whose it is by the run that started it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.telemetry.listeners import Listeners, listening_inodes

SERVE = "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); sys.stdin.read()"


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::", "::1"])
def test_a_listener_on_any_address_that_answers_loopback_is_found(address: str) -> None:
    with socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET) as server:
        found = Listeners().of(server.getsockname()[1])
    assert [who.pid for who in found] == [os.getpid()]


def test_a_port_without_a_listener_has_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert not Listeners().is_held(client.getsockname()[1])  # a connected socket is no listening one
    assert not Listeners().is_held(port)
    assert Listeners().of(port) == ()


def test_a_childs_listener_belongs_to_the_run_of_its_ancestor(tmp_path: Path) -> None:
    env = {**os.environ, "TENURE_JOB_ID": "7", "TENURE_RUN_DIR": str(tmp_path)}
    parent = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {SERVE!r}], env={{}}))"
    process = subprocess.Popen([sys.executable, "-c", parent], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    with process:
        (who,) = Listeners().of(int(process.stdout.readline()))
        assert who.run_dir == str(tmp_path)
        assert who.pid != process.pid
        process.stdin.close()


def test_another_network_address_is_not_taken_for_ours() -> None:
    line = "   0: 0200007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 0 4242 1 0 100 0 0 10 0"
    assert listening_inodes([line], 8080) == set()
    assert listening_inodes([line.replace("0200007F", "0100007F")], 8080) == {4242}


def test_what_is_no_listener_is_not_read_further() -> None:
    """Thousands of closed connections cost nothing: the kernel writes every listener before them."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    pairs = [(socket.create_connection(server.getsockname()), server.accept()[0]) for server in held]
    lines = Path("/proc/net/tcp").read_text().splitlines()
    states = [line.split()[3] for line in lines[1:]]
    assert states == sorted(states, key=lambda state: state != "0A"), "listeners come first"

    def first(lines: list[str]) -> Iterator[str]:
        for line in lines:
            yield line
            assert line.split()[3] in ("st", "0A"), "nothing behind the first that does not listen"

    for server in held:
        assert len(listening_inodes(first(lines), server.getsockname()[1])) == 1
    for one in (*held, *(end for pair in pairs for end in pair)):
        one.close()


def test_a_connection_is_counted_at_the_side_that_was_called() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert Listeners().connected(port) == 0
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            assert Listeners().connected(port) == 1
            assert Listeners().connected(client.getsockname()[1]) == 1, "seen from its own side"
            accepted.close()
        assert Listeners().connected(port) == 0
