"""A card that is measured: the daemon as it is started, before a driver's library that the test steers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from nvml_fixtures import FakeNvml

    from .conftest import UnixConnection

GIB = 1 << 30


@pytest.fixture
def machine(fake_nvml: Callable[..., FakeNvml]) -> FakeNvml:
    return fake_nvml(cards=2)


@pytest.fixture
def ask(machine: FakeNvml, tmp_path: Path, unix_connection: type[UnixConnection]) -> Iterator[Callable[..., bytes]]:
    home = tmp_path / "home"
    ready, tell = os.pipe()
    daemon = subprocess.Popen(
        [sys.executable, "-m", "tenure.portal.daemon", "--ready-fd", str(tell)],
        env=machine.environ(TENURE_HOME=str(home)),
        pass_fds=[tell],
    )
    os.close(tell)
    with os.fdopen(ready) as pipe:
        said = json.loads(pipe.readline())
    assert said["ready"], said

    def ask(method: str, path: str, body: Any = None) -> bytes:
        connection = unix_connection(home / "daemon" / "api.sock")
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse().read()
        connection.close()
        return answer

    try:
        yield ask
    finally:
        daemon.terminate()
        assert daemon.wait(20) == 0


def test_memory_is_shown_as_measured_beside_what_was_declared(ask: Callable[..., bytes], machine: FakeNvml) -> None:
    body = {"argv": ["sh", "-c", "echo $$; exec sleep 60"], "shares": 2, "gpu_memory": "8Gi", "name": "measured"}
    job = json.loads(ask("POST", "/api/v1/jobs", body))["id"]
    pid = b""
    while not pid.endswith(b"\n"):
        pid = ask("GET", f"/api/v1/jobs/{job}/logs")
    cards = json.loads(ask("GET", "/api/v1/cards"))
    assert [(card["source"], card["memory_measured"]) for card in cards] == [("measured", 0)] * 2
    (at,) = [number for number, card in enumerate(cards) if card["holders"]]
    machine.state.use(at, int(pid), 6 * GIB)
    deadline = time.monotonic() + 20
    while (holder := json.loads(ask("GET", "/api/v1/cards"))[at]["holders"][0])["memory_measured"] != 6 * GIB:
        assert time.monotonic() < deadline, holder

    page = ask("GET", "/").decode()
    while "6 GiB measured" not in page:  # a shared look may be a second old
        assert time.monotonic() < deadline, page
        page = ask("GET", "/").decode()
    assert "declared, not measured" not in page
    assert page.count('aria-label="Card ') == 2
    assert "8 GiB of " in page
    families = {family.name: family for family in text_string_to_metric_families(ask("GET", "/metrics").decode())}
    used = {sample.labels["UUID"]: sample.value for sample in families["DCGM_FI_DEV_FB_USED"].samples}
    assert used == {card["id"]: 6 * 1024 if number == at else 0 for number, card in enumerate(cards)}
    ask("POST", f"/api/v1/jobs/{job}:cancel", {"grace_s": 0.2})
