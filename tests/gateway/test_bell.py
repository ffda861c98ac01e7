"""The daemon keeps a gateway, also where one cannot be started for a while."""

from __future__ import annotations

import os
from pathlib import Path

from .conftest import Home, eventually


def test_a_gateway_that_cannot_be_started_is_tried_again_and_costs_nothing_meanwhile(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    log = home.path / "daemon" / "daemon.log"
    (home.path / "daemon" / "gateway.log").mkdir(parents=True)
    home.up()
    try:
        daemon = int(home.rest("GET", "/status")["pid"])

        def tries() -> int:
            return log.read_text().count("the gateway cannot be kept")

        def files() -> int:
            """The descriptors that the daemon has open."""
            return len(os.listdir(f"/proc/{daemon}/fd"))

        home.declare("small")
        home.rest("POST", "/policy:reload")
        eventually(lambda: tries() >= 1)
        first = files()
        eventually(lambda: tries() >= 4)
        eventually(lambda: files() <= first + 1)  # what is open at the moment of looking is closed in the next
        (home.path / "daemon" / "gateway.log").rmdir()
        eventually(lambda: home.ask("GET", "/v1/models").status == 200)
        assert "small" in home.heard()
    finally:
        home.tenure("down")
