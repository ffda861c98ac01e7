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

        def after(tries: int) -> int:
            """The descriptors that the daemon has open."""
            eventually(lambda: log.read_text().count("the gateway cannot be kept") >= tries)
            return len(os.listdir(f"/proc/{daemon}/fd"))

        home.declare("small")
        home.rest("POST", "/policy:reload")
        first = after(1)
        assert after(4) <= first + 1, "one may be open at the moment of looking"
        (home.path / "daemon" / "gateway.log").rmdir()
        eventually(lambda: home.ask("GET", "/v1/models").status == 200)
        assert "small" in home.heard()
    finally:
        home.tenure("down")
