"""Debian's Prometheus scrapes a daemon as it is installed: what really happened is what queries and alerts say."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from nvml_fixtures import FakeNvml

    from .conftest import UnixConnection

DEPLOY = Path(__file__).parents[2] / "deploy" / "prometheus"
PATIENCE_S = 30.0
QUIET_STUDY = """
import tenure
@tenure.study(quiet_after_s=1.0)
def silent(run: tenure.Run) -> None:
    run.log(step=1, loss=1.0)
    print("spoke", flush=True)
    run.sleep(60)
silent.main()
"""


class Daemon:
    """The daemon of one home, a process of its own, started and killed as a machine would."""

    def __init__(self, home: Path, connection: type[UnixConnection], env: dict[str, str], *flags: str) -> None:
        self.home, self._connection, self._env, self._flags = home, connection, env, flags
        self.start()

    def start(self) -> None:
        ready, tell = os.pipe()
        command = [sys.executable, "-m", "tenure.portal.daemon", "--ready-fd", str(tell), *self._flags]
        self.process = subprocess.Popen(command, env={**self._env, "TENURE_HOME": str(self.home)}, pass_fds=[tell])
        os.close(tell)
        with os.fdopen(ready) as pipe:
            said = json.loads(pipe.readline())
        assert said["ready"], said
        self.port = urllib.parse.urlsplit(said["url"]).port

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        connection = self._connection(self.home / "daemon" / "api.sock")
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        assert answer.status < 300, text
        return json.loads(text) if text else None

    def submit(self, *argv: str, **fields: Any) -> str:
        return str(self.ask("POST", "/api/v1/jobs", {"argv": list(argv), "gpu_memory": "1Gi", **fields})["id"])

    def wait(self, job: str) -> Any:
        shown = self.ask("GET", f"/api/v1/jobs/{job}:wait?timeout=20")
        assert shown, f"job {job} has not ended"
        return shown

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(30) == 0


class Prometheus:
    """A private server with the shipped configuration and rules, its clocks turned up."""

    def __init__(self, folder: Path, daemon: Daemon) -> None:
        config = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())
        config["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
        (scraped,) = config["scrape_configs"]
        scraped["authorization"]["credentials_file"] = str(daemon.home / "tokens" / "operator")
        scraped["static_configs"] = [{"targets": [f"127.0.0.1:{daemon.port}"]}]
        for name in config["rule_files"]:
            (folder / name).write_text(yaml.safe_dump(_hurried(yaml.safe_load((DEPLOY / name).read_text()))))
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self._log = folder / "prometheus.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}",
                 "--web.listen-address=127.0.0.1:0"],
                stderr=log,
            )  # fmt: skip
        self.url = f"http://{self._address()}"

    def _address(self) -> str:
        """It takes a free port and says in its log which."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := re.search(r'msg="Listening on" address=(\S+)', self._log.read_text())):
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)
        return found[1]

    def get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=5) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> float | None:
        """The value of a query with one series; None where there is none."""
        result = self.get("query", query=expression)["result"]
        return float(result[0]["value"][1]) if result else None

    def firing(self) -> dict[str, dict[str, Any]]:
        return {a["labels"]["alertname"]: a for a in self.get("alerts")["alerts"] if a["state"] == "firing"}

    def until(self, what: str, holds: Callable[[], Any]) -> Any:
        """A scrape is no event that one could wait for: look again and again."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := _when_it_answers(holds)):
            assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}; firing {sorted(self.firing())}"
            time.sleep(0.1)
        return found

    def says(self, expression: str, value: float) -> None:
        self.until(f"{expression} is {value}: {self.query(expression)}", lambda: self.query(expression) == value)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


def _when_it_answers(holds: Callable[[], Any]) -> Any:
    try:
        return holds()
    except OSError:
        return None  # 503 while it starts


def _hurried(rules: dict[str, Any]) -> dict[str, Any]:
    """Waits of a second, and windows of twenty: the thresholds stay those that are shipped."""
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = "1s"
            rule["expr"] = re.sub(r"\[\d+[smhd]\]", "[20s]", rule["expr"])
    return rules


@pytest.fixture
def daemon(tmp_path: Path, unix_connection: type[UnixConnection]) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path / "home", unix_connection, dict(os.environ), "--card", "8x16Gi")
    try:
        yield daemon
    finally:
        if daemon.process.poll() is None:
            daemon.stop()


@pytest.fixture
def prometheus(tmp_path: Path, daemon: Daemon) -> Iterator[Prometheus]:
    prometheus = Prometheus(tmp_path, daemon)
    try:
        prometheus.until("it scrapes", lambda: prometheus.query("up") == 1)
        yield prometheus
    finally:
        prometheus.stop()


def test_queries_and_alerts_say_what_really_happened(daemon: Daemon, prometheus: Prometheus, tmp_path: Path) -> None:
    says = prometheus.says
    assert not prometheus.firing()
    for job in [daemon.submit("true", shares=1) for _ in range(3)]:
        daemon.wait(job)
    says("sum(tenure_job_outcomes_total{outcome='completed'})", 3)

    # one that is preempted, and comes back when the other has ended
    low = daemon.submit("sleep", "60", shares=8, priority="batch")
    says("sum(tenure_admitted_active_workloads)", 1)
    daemon.wait(daemon.submit("true", shares=8, priority="training"))
    says("sum(tenure_preempted_workloads_total{preempting_cluster_queue='general',reason='InClusterQueue'})", 1)
    says("sum(tenure_evicted_workloads_total{reason='Preempted',priority_class='batch',cluster_queue='general'})", 1)
    says("sum(tenure_admitted_workloads_total{priority_class='batch'})", 5)
    says("sum(tenure_cluster_queue_resource_usage{resource='nvidia.com/gpu'})", 8)
    says("tenure:card_shares_held:ratio", 1)
    daemon.ask("POST", f"/api/v1/jobs/{low}:cancel", {"grace_s": 0.1})
    daemon.wait(low)

    # some that cannot be launched
    broken = [daemon.submit("no-such-program", shares=1) for _ in range(4)]
    fails = prometheus.until("launches fail", lambda: prometheus.firing().get("TenureLaunchesFail"))
    assert fails["labels"]["cluster_queue"] == "general"
    assert fails["annotations"]["runbook"]
    for job in broken:
        daemon.ask("POST", f"/api/v1/jobs/{job}:cancel", {})

    # one that asks for more than there is, while nothing runs
    never = daemon.submit("true", shares=8, gpu_memory="17Gi")
    says("sum(tenure_unadmitted_workloads{reason='ExceedsMaxQuota',cluster_queue='general'})", 1)
    says("sum(tenure_pending_workloads{status='inadmissible'})", 1)
    prometheus.until("they fire", lambda: {"TenureCanNeverStart", "TenureIdleWhileWorkWaits"} <= set(prometheus.firing()))  # fmt: skip
    daemon.ask("POST", f"/api/v1/jobs/{never}:cancel", {})

    # one that falls silent and holds what it has
    (tmp_path / "silent.py").write_text(QUIET_STUDY)
    silent = daemon.submit(sys.executable, str(tmp_path / "silent.py"), shares=1, workdir=str(tmp_path))
    directory = daemon.home / "runs" / f"{silent}.1"
    while not (log := directory / "stdout.log").exists() or "spoke" not in log.read_text():
        daemon.ask("GET", f"/api/v1/jobs/{silent}:wait?timeout=0.1")
    members = [json.loads(line) for line in (directory / "supervisor.jsonl").read_text().splitlines()]
    os.kill(next(m["pid"] for m in members if m["kind"] == "member"), signal.SIGSTOP)
    says("tenure_stalled_runs", 1)
    prometheus.until("they fire", lambda: {"TenureRunsStalled", "TenureRunsGivenUp"} <= set(prometheus.firing()))
    says("sum(tenure_runs_given_up_total{kind='job'})", 1)

    # the daemon is killed, and the next one knows what still stalls without counting it again
    daemon.kill()
    down = prometheus.until("it is down", lambda: prometheus.firing().get("TenureDown"))
    assert down["labels"]["severity"] == "critical"
    daemon.start()
    says("up", 1)
    says("tenure_stalled_runs", 1)
    says("sum(tenure_runs_given_up_total)", 0)
    says("sum(tenure_admitted_workloads_total)", 0)
    says("sum(tenure_admitted_active_workloads)", 1)
    prometheus.until("it is up", lambda: "TenureDown" not in prometheus.firing())
    daemon.ask("POST", f"/api/v1/jobs/{silent}:cancel", {"grace_s": 0.1})
    daemon.wait(silent)
    says("sum(tenure_finished_workloads_total)", 1)
    says("tenure_stalled_runs", 0)
    assert not {"TenureLoopStopped", "TenureLoopFaults", "TenureBackendDown"} & set(prometheus.firing())


def test_a_measured_card_has_dcgms_names(
    fake_nvml: Callable[..., FakeNvml], tmp_path: Path, unix_connection: type[UnixConnection]
) -> None:
    machine = fake_nvml(cards=2)
    daemon = Daemon(tmp_path / "home", unix_connection, machine.environ())
    try:
        prometheus = Prometheus(tmp_path, daemon)
        try:
            prometheus.until("it scrapes", lambda: prometheus.query("up") == 1)
            machine.state.use(1, os.getpid(), 6 << 30)
            prometheus.says("DCGM_FI_DEV_FB_USED{gpu='1'}", 6 * 1024)
            prometheus.says("DCGM_FI_DEV_FB_USED{gpu='0'}", 0)
            (card,) = prometheus.get("query", query="DCGM_FI_DEV_GPU_TEMP{gpu='1'}")["result"]
            cards = daemon.ask("GET", "/api/v1/cards")
            assert card["metric"]["UUID"] == cards[1]["id"]
            assert card["metric"]["modelName"] == cards[1]["name"]
            assert float(card["value"][1]) == cards[1]["temperature"]
            prometheus.says("sum(tenure_card_readable{source='measured'})", 2)
            assert prometheus.query("count(DCGM_FI_DEV_XID_ERRORS)") is None, "none was reported, and none is made up"
            machine.state.xid(1, 79)
            prometheus.says("DCGM_FI_DEV_XID_ERRORS{gpu='1'}", 79)
            fault = prometheus.until("it fires", lambda: prometheus.firing().get("TenureCardFault"))
            assert fault["labels"]["UUID"] == cards[1]["id"]
        finally:
            prometheus.stop()
    finally:
        daemon.stop()
