"""Many writers of one record, on real processes: lines stay whole, a kill costs one line, a full disk is said."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tenure.sdk.lines import parse
from tenure.sdk.record import RecordWriter, read_record

MANY = """
import sys, threading
from tenure.sdk.record import RecordWriter
writer = RecordWriter(sys.argv[1])
sys.stdin.read(1)
def write(thread):
    for number in range({lines}):
        writer.result(f"{{sys.argv[2]}}.{{thread}}.{{number}}", "x" * (number * 37 % 5000))
        writer.metric(number, {{"loss": number}})
threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
"""

ENDLESS = """
import sys
from tenure.sdk.record import RecordWriter
writer = RecordWriter(sys.argv[1])
number = 0
while True:
    writer.result(f"{sys.argv[2]}.{number}", "y" * 200_000)
    if number == 3: print("going", flush=True)
    number += 1
"""


def test_sixty_four_writers_keep_their_lines_whole(tmp_path: Path) -> None:
    RecordWriter(tmp_path).opened(run_id="r")
    command = [sys.executable, "-S", "-c", MANY.format(lines=20), str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    writers = [subprocess.Popen([*command, str(i)], stdin=subprocess.PIPE, env=env) for i in range(16)]
    for writer in writers:  # all are up: now they write at once
        assert writer.stdin is not None
        writer.stdin.write(b"!")
        writer.stdin.close()
    assert [writer.wait(60) for writer in writers] == [0] * 16
    record = read_record(tmp_path)
    assert record.damaged == 0
    assert len(record.results) == 16 * 4 * 20
    assert record.metrics["loss"]["count"] == 16 * 4 * 20


def test_a_kill_in_the_middle_of_writing_costs_at_most_the_line_being_written(tmp_path: Path) -> None:
    steady = RecordWriter(tmp_path)
    steady.opened(run_id="r")
    written = 0
    for victim in range(6):
        writer = subprocess.Popen([sys.executable, "-c", ENDLESS, str(tmp_path), str(victim)], stdout=subprocess.PIPE)
        with writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            for _ in range(20):
                steady.result(f"steady.{written}", written)
                written += 1
            writer.send_signal(signal.SIGKILL)
        steady.result(f"steady.{written}", written)
        written += 1
    counts: Counter[str] = Counter()
    highest: dict[str, int] = {}
    for line in (tmp_path / "record.jsonl").read_bytes().split(b"\n"):
        for found in parse(line):
            if found["kind"] == "result":
                who, _, number = str(found["name"]).partition(".")
                counts[who] += 1
                highest[who] = int(number)
    assert counts["steady"] == written
    for victim in range(6):
        assert counts[str(victim)] == highest[str(victim)] + 1  # none missing before the last one read
    assert read_record(tmp_path).damaged <= 6


def test_a_full_disk_is_an_error_and_leaves_no_half_line(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path)
    writer.opened(run_id="r")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        # the kernel cuts a write at this size, as a full disk does
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "record.jsonl").stat().st_size + 40, before[1]))
        with pytest.raises(OSError, match="File too large"):
            writer.result("lost", "z" * 500)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    writer.result("kept", 1)
    writer.closed("completed")
    record = read_record(tmp_path)
    assert record.results == {"kept": 1}
    assert record.outcome == "completed"


def test_a_directory_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        RecordWriter(tmp_path / "file" / "run")


def test_descriptors_are_not_inherited_by_commands(tmp_path: Path) -> None:
    RecordWriter(tmp_path).opened(run_id="r")
    writer = RecordWriter(tmp_path)
    writer.metric(1, {"x": 1})
    listed = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, check=True, close_fds=False)
    assert str(tmp_path) not in listed.stdout


def test_it_is_light_to_import() -> None:
    """A supervisor imports the record; `import tenure` alone brings nothing."""
    show = "import sys; before = set(sys.modules); import {}; print(*sorted(set(sys.modules) - before))"
    for what, brought in (
        ("tenure", {"tenure", "__future__"}),
        ("tenure.sdk.record", {"tenure", "__future__", "tenure.sdk", *(f"tenure.sdk.{name}" for name in
                                                                    ("fold", "follow", "lines", "record", "writer"))}),
    ):  # fmt: skip
        command = [sys.executable, "-I", "-c", show.format(what)]
        modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert set(modules) <= brought


def test_the_pen_never_imports_another_room() -> None:
    show = (
        "import sys, tenure; tenure.study; tenure.Run; print(*sorted(m for m in sys.modules if m.startswith('tenure')))"
    )
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
    rooms = {name.split(".")[1] for name in done.stdout.split() if "." in name}
    assert rooms == {"sdk"}
