"""Cards are found, declared and watched; none of it ever raises because of a card."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from nvml_fixtures import FakeNvml
from nvml_state import GIB, GPU_IS_LOST, NO_PERMISSION, NOT_SUPPORTED, UNKNOWN, card_uuid

from tenure.domain.errors import InvalidRequest
from tenure.telemetry.cards import declared, flavor_name, to_card
from tenure.telemetry.monitor import CardMonitor

Make = Callable[..., FakeNvml]

PROBE = """
import dataclasses, json, sys
from tenure.telemetry.cards import discover
from tenure.telemetry.monitor import CardMonitor
seen = []
monitor = None
for line in sys.stdin:
    answer = eval(line, globals())
    print(json.dumps(answer, default=dataclasses.asdict), flush=True)
"""


class Probe:
    """A program that sees the fake cards and answers expressions, one at a time."""

    def __init__(self, fake: FakeNvml) -> None:
        self._process = fake.start(PROBE)

    def ask(self, expression: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(expression + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the probe died over {expression}: exit code {self._process.wait()}"
        return json.loads(line)

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.communicate(timeout=20)  # closes its input: it ends by itself
        assert self._process.returncode == 0


OPEN = "bool(globals().__setitem__('monitor', CardMonitor()))"


# --- found


def test_cards_are_found_with_all_that_names_them(fake_nvml: Make) -> None:
    fake = fake_nvml(cards=2)
    fake.state.card(0).memory_reserved = GIB
    with Probe(fake) as probe:
        found = probe.ask("discover()")
    assert found["reason"] == ""
    assert found["cards"][0] == {
        "uuid": card_uuid(0),
        "index": 0,
        "name": "NVIDIA H200 (fake)",
        "memory": 150_754_820_096,
        "reserved": GIB,
        "driver": "580.00.fake",
        "pci_bus_id": "00000000:01:00.0",
        "measured": True,
        "shares": None,
    }
    assert [card["uuid"] for card in found["cards"]] == [card_uuid(0), card_uuid(1)]


def test_sixteen_cards_of_two_models_are_two_flavors(fake_nvml: Make) -> None:
    fake = fake_nvml(cards=16)
    for index in range(8, 16):
        fake.state.card(index).name = b"NVIDIA L4"
        fake.state.card(index).memory_total = 24 * GIB
    with Probe(fake) as probe:
        found = probe.ask("discover()")["cards"]
        samples = probe.ask("CardMonitor().sample()")
    assert len({card["uuid"] for card in found}) == 16
    flavors = [flavor_name(card["name"]) for card in found]
    assert flavors == ["nvidia-h200-fake"] * 8 + ["nvidia-l4"] * 8
    assert [card["memory"] for card in found[7:9]] == [150_754_820_096, 24 * GIB]
    assert [sample["card"] for sample in samples] == [card["uuid"] for card in found]


def test_a_machine_without_nvml_has_no_cards_and_a_reason() -> None:
    code = "from tenure.telemetry.cards import discover; d = discover(); print(len(d.cards), d.reason)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={"LD_LIBRARY_PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.startswith("0 no NVIDIA driver on this machine")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("loaded", 0, "driver is not loaded"),
        ("init_code", UNKNOWN, "NVML could not be opened: Unknown Error"),
        ("cards", 0, "reports no card"),
    ],
)
def test_a_driver_that_gives_no_card_says_why(fake_nvml: Make, field: str, value: int, reason: str) -> None:
    fake = fake_nvml()
    setattr(fake.state.file, field, value)
    with Probe(fake) as probe:
        found = probe.ask("discover()")
    assert found["cards"] == []
    assert reason in found["reason"]


def test_a_lost_card_and_a_card_in_mig_mode_are_left_out_by_name(fake_nvml: Make) -> None:
    fake = fake_nvml(cards=3)
    fake.state.card(0).lost = 1
    fake.state.card(1).mig = 1
    with Probe(fake) as probe:
        found = probe.ask("discover()")
    assert [card["uuid"] for card in found["cards"]] == [card_uuid(2)]
    assert "card 0 does not answer: GPU is lost" in found["reason"]
    assert f"card 1 ({card_uuid(1)}) is in MIG mode" in found["reason"]


def test_looking_for_cards_again_and_again_gives_every_reference_back(fake_nvml: Make) -> None:
    fake = fake_nvml()
    with Probe(fake) as probe:
        assert probe.ask("[len(discover().cards) for _ in range(50)]") == [1] * 50
        fake.state.file.loaded = 0  # only an opening after a full close sees this
        assert probe.ask("discover()")["cards"] == []


# --- sampled


def test_a_sample_reads_memory_load_heat_power_and_processes(fake_nvml: Make) -> None:
    fake = fake_nvml()
    card = fake.state.card(0)
    card.memory_base, card.utilization, card.temperature, card.power_mw = GIB, 87, 61, 412_500
    fake.state.use(0, 4242, 3 * GIB, ghost=True)
    fake.state.use(0, 4243, 2 * GIB, ghost=True)
    with Probe(fake) as probe:
        probe.ask(OPEN)
        (sample,) = probe.ask("monitor.sample()")
        assert sample.pop("at") > 0
        assert sample == {
            "card": card_uuid(0),
            "memory_total": 150_754_820_096,
            "memory_used": 6 * GIB,
            "utilization": 87,
            "temperature": 61,
            "power": 412.5,
            "processes": [{"pid": 4242, "memory": 3 * GIB}, {"pid": 4243, "memory": 2 * GIB}],
            "error": "",
            "measured": True,
            "lost": False,
        }
        fake.state.free(0, 4242)
        assert probe.ask("monitor.sample()[0].memory_used") == 3 * GIB


def test_memory_comes_back_when_its_process_ends(fake_nvml: Make) -> None:
    fake = fake_nvml()
    holder = fake.start("input()")
    fake.state.use(0, holder.pid, 5 * GIB)
    with Probe(fake) as probe:
        probe.ask(OPEN)
        assert probe.ask("monitor.sample()[0].processes") == [{"pid": holder.pid, "memory": 5 * GIB}]
        holder.communicate("\n", timeout=20)
        assert probe.ask("[monitor.sample()[0].processes, monitor.sample()[0].memory_used]") == [[], 0]


def test_a_lost_card_is_a_reading_with_an_error_and_the_others_go_on(fake_nvml: Make) -> None:
    fake = fake_nvml(cards=3)
    with Probe(fake) as probe:
        probe.ask(OPEN)
        fake.state.card(1).lost = 1
        for _ in range(2):  # by its old handle, and looked up anew
            samples = probe.ask("monitor.sample()")
            assert [bool(sample["error"]) for sample in samples] == [False, True, False]
            assert [sample["lost"] for sample in samples] == [False, True, False]
        assert samples[1]["error"] == "GPU is lost"
        assert samples[1]["memory_used"] is samples[1]["processes"] is None
        fake.state.card(1).lost = 0
        assert probe.ask("[s.error for s in monitor.sample()]") == ["", "", ""]


def test_what_a_card_does_not_tell_is_unknown_and_what_fails_is_an_error(fake_nvml: Make) -> None:
    fake = fake_nvml(cards=2)
    fake.state.card(0).fail_processes = NOT_SUPPORTED
    fake.state.card(1).fail_processes = NO_PERMISSION
    fake.state.card(1).fail_readings = NOT_SUPPORTED
    with Probe(fake) as probe:
        probe.ask(OPEN)
        quiet, failing = probe.ask("monitor.sample()")
    assert (quiet["error"], quiet["processes"], quiet["memory_used"]) == ("", None, 0)
    assert failing["error"] == "processes: Insufficient Permissions"
    assert (failing["utilization"], failing["power"], failing["memory_used"]) == (None, None, 0)
    assert not failing["lost"]  # it answers


def test_the_only_card_comes_back_after_a_reset(fake_nvml: Make) -> None:
    fake = fake_nvml()
    with Probe(fake) as probe:
        probe.ask(OPEN)
        probe.ask("setattr(CardMonitor, 'REOPEN_S', 0.0)")
        fake.state.card(0).fail_memory = GPU_IS_LOST
        assert probe.ask("monitor.sample()[0].error") == "memory: GPU is lost"
        fake.state.file.loaded = 0  # the session was dropped: the driver may be reloaded meanwhile
        assert "not loaded" in probe.ask("monitor.sample()[0].error")
        assert not probe.ask("monitor.sample()[0].lost")  # a library that is gone says nothing about a card
        fake.state.file.loaded, fake.state.card(0).fail_memory = 1, 0
        assert probe.ask("monitor.sample()[0].error") == ""


def test_a_closed_monitor_answers_and_lets_the_library_go(fake_nvml: Make) -> None:
    fake = fake_nvml()
    with Probe(fake) as probe:
        probe.ask(OPEN)
        probe.ask("[monitor.listen(seen.append), monitor.sample(), monitor.close(), monitor.close()]")
        assert probe.ask("monitor.sample()[0].error") == "the monitor is closed"
        fake.state.file.loaded = 0
        assert probe.ask("discover()")["cards"] == []  # no reference is left, neither the sampler's nor the listener's
        assert probe.ask("[t.name for t in __import__('threading').enumerate()]") == ["MainThread"]


def test_ten_thousand_samples_from_four_threads_keep_memory_and_descriptors_flat(fake_nvml: Make) -> None:
    fake = fake_nvml(cards=2)
    fake.state.use(0, 4242, GIB, ghost=True)
    code = """
import gc, os, threading
from tenure.telemetry.monitor import CardMonitor
def size():
    gc.collect()
    return int(open('/proc/self/statm').read().split()[1]) * 4096, len(os.listdir('/proc/self/fd'))
def work(n):
    for _ in range(n):
        if any(sample.error for sample in monitor.sample()):
            wrong.append(1)
wrong, monitor = [], CardMonitor()
work(500)
before = size()
threads = [threading.Thread(target=work, args=(2500,)) for _ in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
after = size()
monitor.close()
print(len(wrong), after[0] - before[0], after[1] - before[1])
"""
    result = subprocess.run(
        [sys.executable, "-c", code], env=fake.environ(), capture_output=True, text=True, timeout=60, check=True
    )
    wrong, grown, descriptors = map(int, result.stdout.split())
    assert (wrong, descriptors) == (0, 0)
    assert grown < 2 << 20


# --- faults


def test_an_xid_is_heard_with_its_card_even_when_the_card_is_lost(fake_nvml: Make) -> None:
    fake = fake_nvml(cards=2)
    fake.state.xid(0, 13)  # before anybody listened
    wait = "__import__('threading').Event()"
    with Probe(fake) as probe:
        probe.ask(OPEN)
        probe.ask(f"bool(globals().__setitem__('told', {wait}))")
        probe.ask("monitor.listen(lambda event: [seen.append(event), told.set()])")
        fake.state.card(1).lost = 1
        fake.state.xid(1, 79)
        assert probe.ask("told.wait(20)")
        (event,) = probe.ask("seen")
        assert (event["card"], event["code"]) == (card_uuid(1), 79)
        assert event["meaning"] == "the card has fallen off the bus"
        assert event["at"] > 0
        assert probe.ask("[monitor.listening, monitor.close()]") == ["", None]


def test_a_card_that_comes_back_is_heard_again(fake_nvml: Make) -> None:
    fake = fake_nvml(cards=2)
    with Probe(fake) as probe:
        probe.ask(OPEN)
        probe.ask("[setattr(CardMonitor, 'REOPEN_S', 0.0), setattr(CardMonitor, 'RELISTEN_S', 0.1)]")
        probe.ask("bool(globals().__setitem__('told', __import__('queue').Queue()))")
        fake.state.card(1).lost = 1
        probe.ask("monitor.listen(lambda event: told.put(event.card))")
        assert card_uuid(1) in probe.ask("monitor.listening")
        fake.state.card(1).lost = 0
        probe.ask("next(n for n in range(2000) if not monitor.listening or __import__('time').sleep(0.01))")
        fake.state.xid(1, 79)
        assert probe.ask("told.get(timeout=20)") == card_uuid(1)
        probe.ask("monitor.close()")


def test_a_listener_that_fails_hears_the_next_xid(fake_nvml: Make) -> None:
    fake = fake_nvml()
    with Probe(fake) as probe:
        probe.ask(OPEN)
        probe.ask("bool(globals().__setitem__('told', __import__('queue').Queue()))")
        probe.ask("monitor.listen(lambda event: [told.put(event.code), 1 / (event.code - 31)])")
        fake.state.xid(0, 31)
        fake.state.xid(0, 119)
        assert probe.ask("[told.get(timeout=20), told.get(timeout=20)]") == [31, 119]
        probe.ask("monitor.close()")


# --- declared


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("8x16Gi", [(8, 16 * GIB)]),
        ("8X16GiB", [(8, 16 * GIB)]),
        (" 1 x 512Mi ", [(1, 512 << 20)]),
        ("2x8x24Gi", [(8, 24 * GIB)] * 2),
        (["8x16Gi", "2x4x20G"], [(8, 16 * GIB), (4, 20 * 10**9), (4, 20 * 10**9)]),
    ],
)
def test_declared_cards_are_numbered_through_and_never_measured(
    flags: str | list[str], expected: list[tuple[int, int]]
) -> None:
    cards = declared(flags)
    assert [(card.shares, card.memory) for card in cards] == expected
    assert [card.id for card in cards] == [f"declared-{i}" for i in range(len(expected))]
    assert not any(card.measured for card in cards)


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("", "this is not a card"),
        ("16Gi", "this is not a card"),
        ("8x", "this is not a card"),
        ("8*16Gi", "this is not a card"),
        ("1x2x3x16Gi", "this is not a card"),
        ("8x16", "only 16 bytes; a unit may be missing"),
        ("8xlots", "not a quantity"),
        ("8x-1Gi", "is negative"),
        ("0x16Gi", "1 to 1024 shares, not 0"),
        ("2000x16Gi", "1 to 1024 shares, not 2000"),
        ("0x8x16Gi", "1 to 64, not 0"),
        ("65x8x16Gi", "1 to 64, not 65"),
    ],
)
def test_a_declaration_that_is_wrong_is_refused_with_what_would_work(flag: str, why: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        declared(flag)
    assert why in str(refused.value)
    assert f"--card {flag!r}" in str(refused.value)
    assert "such as 8x16Gi" in str(refused.value)
    assert refused.value.field == "card"


def test_declared_cards_are_sampled_as_unknown() -> None:
    with CardMonitor(declared("8x16Gi")) as monitor:
        (sample,) = monitor.sample()
        monitor.listen(print)  # nobody to hear: no thread, no library
    assert (sample.measured, sample.memory_total, sample.memory_used, sample.error) == (False, 16 * GIB, None, "")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("NVIDIA H200 (fake)", "nvidia-h200-fake"),
        ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
        ("NVIDIA GeForce RTX 4090", "nvidia-geforce-rtx-4090"),
        ("  ", "card"),
        ("x" * 62 + " y", "x" * 62),
    ],
)
def test_a_model_becomes_a_kubernetes_name(model: str, name: str) -> None:
    assert flavor_name(model) == name


def test_the_engine_gets_shares_and_the_memory_that_jobs_can_have() -> None:
    (small,) = declared("4x16Gi")
    assert to_card(small).shares == 4
    assert to_card(small).flavor == "declared-card"
    found = type(small)(uuid="GPU-1", index=3, name="NVIDIA L4", memory=24 * GIB, reserved=GIB)
    card = to_card(found, cordoned=True)
    assert (card.shares, card.memory, card.index, card.flavor, card.cordoned) == (8, 23 * GIB, 3, "nvidia-l4", True)


def test_this_process_loads_no_nvml_by_importing_cards() -> None:
    code = "import sys, tenure.telemetry.monitor; print('pynvml' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
