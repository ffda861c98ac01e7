"""Ports for models, where several platforms share one machine."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from tenure.control.model_ports import Ports
from tenure.domain.errors import Unavailable

FEW = range(12_000, 12_012)  # where no platform looks


def every(*ports: Ports) -> list[int]:
    """Each gives in turn what it has, until none is left."""
    given: list[int] = []
    with suppress(Unavailable):
        while True:
            given.append(ports[len(given) % len(ports)].give())
    return given


def test_no_two_platforms_give_the_same_port_and_one_that_is_taken_back_is_given_again() -> None:
    one, other = Ports(FEW), Ports(FEW)
    given = every(one, other)
    assert len(given) == len(set(given)) > 2, "each that was free, once"
    one.take_back(given[1])  # it is the other's: nothing
    with pytest.raises(Unavailable, match="no free port between 12000 and 12011 for a model"):
        one.give()
    other.take_back(given[1])
    assert one.give() == given[1]
    assert not other.keep(given[1])
    one.close()
    other.close()
    assert sorted(every(one)) == sorted(given), "what was free is free again"
    one.close()


def test_one_that_somebody_listens_on_is_not_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable):
            Ports(range(port, port + 1)).give()


def test_what_a_daemon_had_given_is_free_when_it_has_gone_and_kept_by_the_next() -> None:
    gone, next_one, other = Ports(FEW), Ports(FEW), Ports(FEW)
    port = gone.give()
    assert not next_one.keep(port)
    gone.take_back(port)  # as its process does by ending
    assert next_one.keep(port)
    assert not other.keep(port)
    next_one.take_back(port)
