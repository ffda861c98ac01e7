"""The gateway's journal, read back: every file, torn lines, what was refused, and nothing twice."""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path
from typing import Any

from tenure.control.requests_seen import Hours, files_in, seen_of
from tenure.gateway.journal import Journal
from tenure.gateway.rotation import Rotated

NOON = 1_900_000_800.0 - 1_900_000_800 % 3600 + 1800  # half past some hour


def line(at: float, model: str = "small", **more: Any) -> str:
    facts = {"status": 200, "held_s": 0.0, "seconds": 1.0, "run": "3.1"} | more
    return json.dumps({"at": at, "model": model, **facts}, separators=(",", ":")) + "\n"


def test_every_file_is_read_and_what_is_torn_or_foreign_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "requests.old.jsonl").write_text(line(100.0) + line(101.0, "other") + "[1]\n" + '{"at":"noon","model":"small"}\n')  # fmt: skip
    with gzip.open(tmp_path / "requests.2.jsonl.gz", "wt") as file:
        file.write(line(50.0, seconds=5.0, held_s=4.5))
    (tmp_path / "requests.jsonl").write_text('{"at":9' + "\n" + line(200.0) + line(201.0)[:-20])
    (tmp_path / "other.jsonl").write_text(line(300.0))
    seen = seen_of(tmp_path, "small", since=0)
    assert sorted(seen.requests) == [(45.0, 0.5), (99.0, 1.0), (199.0, 1.0)]
    assert seen_of(tmp_path, "small", since=99.5).requests == ((199.0, 1.0),)
    assert seen_of(tmp_path / "none", "small", since=0).requests == ()


def test_a_part_that_is_being_packed_counts_once(tmp_path: Path) -> None:
    part = tmp_path / "requests.20261129T000000.000001.jsonl"
    part.write_text(line(100.0))
    with gzip.open(f"{part}.gz", "wt") as file:
        file.write(line(100.0))
    part.with_name(part.name + ".gz.new").write_bytes(b"\x1f\x8b half of it")
    assert seen_of(tmp_path, "small", since=0).requests == ((99.0, 1.0),)


def test_parts_that_ended_before_are_not_opened(tmp_path: Path) -> None:
    part = tmp_path / "requests.1.jsonl"
    part.write_text(line(100.0))
    os.utime(part, (100, 100))
    (tmp_path / "requests.jsonl").write_text(line(5000.0))
    seen = seen_of(tmp_path, "small", since=4000)
    assert (seen.requests, seen.first_at) == (((4999.0, 1.0),), 100.0)


def test_a_real_journal_is_set_aside_packed_and_read_whole(tmp_path: Path) -> None:
    """The parts as the gateway's own rotation leaves them."""
    now = time.time()
    journal = Rotated(tmp_path / "requests.jsonl", part=300)
    for k in range(12):
        journal.write([line(now - 100 + k).encode()])
    for part in tmp_path.glob("requests.*.jsonl"):
        os.utime(part, (now - 100_000, now - 100_000))
    journal.tidy()
    assert {path.suffix for path in tmp_path.iterdir()} == {".jsonl", ".gz"}
    assert len(seen_of(tmp_path, "small", since=0).requests) == 12
    journal.close()


def test_what_the_gateway_turned_away_woke_nobody(tmp_path: Path) -> None:
    rows = [
        line(10, status=404, run=None), line(20, status=429, run=None), line(30, status=429), line(40, status=499, run=None),
        line(50, status=503, run=None), line(60, seconds="long", held_s=-1), line(70, "small\"er"),
    ]  # fmt: skip
    (tmp_path / "requests.jsonl").write_text("".join(rows))
    assert [begin for begin, _ in seen_of(tmp_path, "small", since=0).requests] == [29, 39, 49, 60]
    assert len(seen_of(tmp_path, 'small"er', since=0).requests) == 1


def test_what_the_journal_writes_is_what_is_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "requests.jsonl")
    for model in ("small", 'sm"all', "small"):
        journal.write(model=model, status=200, held_s=0.25, seconds=1.0, run="3.1")
    seen = seen_of(tmp_path, "small", since=0)
    assert [service for _, service in seen.requests] == [0.75, 0.75]
    assert seen.first_at is not None
    hours = Hours(tmp_path)
    now = seen.first_at + 1
    hours.look(now=now)
    assert sum(hours.of("small", now=now)) == 2
    assert sum(hours.of('sm"all', now=now)) == 1


def test_hours_are_counted_once_and_forgotten_after_a_day(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text(line(NOON - 30 * 3600) + line(NOON - 3600) + line(NOON) + line(NOON, "other"))
    hours = Hours(tmp_path)
    hours.look(now=NOON)
    hours.look(now=NOON)
    assert hours.of("small", now=NOON) == [*[0] * 22, 1, 1]
    with path.open("a") as file:
        file.write(line(NOON)[:10])
        file.flush()
        hours.look(now=NOON)
        assert hours.of("small", now=NOON)[-1] == 1
        file.write(line(NOON)[10:])
    hours.look(now=NOON)
    assert hours.of("small", now=NOON)[-1] == 2
    path.rename(tmp_path / "requests.old.jsonl")
    path.write_text(line(NOON + 3600))
    hours.look(now=NOON + 3600)
    assert hours.of("small", now=NOON + 3600)[-3:] == [1, 2, 1]
    hours.look(now=NOON + 24 * 3600)
    assert hours.of("small", now=NOON + 24 * 3600) == [1, *[0] * 23]
    path.unlink()
    path.write_text("")
    hours.look(now=NOON + 24 * 3600)


def test_a_long_past_is_not_read(tmp_path: Path) -> None:
    """The first look begins where the last day does."""
    path = tmp_path / "requests.jsonl"
    early = line(NOON - 100 * 3600, who="x" * 200)
    path.write_text(early * 3000 + line(NOON - 2 * 3600) * 1000)
    hours = Hours(tmp_path)
    read: list[int] = []
    take = hours._take

    def watched(file: Any, at: int, *, oldest: int) -> int:
        read.append(at)
        return take(file, at, oldest=oldest)

    hours._take = watched  # type: ignore[method-assign]
    hours.look(now=NOON)
    assert hours.of("small", now=NOON)[-3] == 1000
    assert read[0] >= len(early) * 3000 - (1 << 17)


def test_a_million_lines_are_a_few_seconds_and_a_look_that_is_repeated_next_to_nothing(tmp_path: Path) -> None:
    """A quarter of a million, as the journal writes them; CPU seconds, for other things run on this machine as well."""
    facts = '"adapter":null,"who":"ci","path":"/v1/chat/completions","status":200,"left":false,"held_s":0.0,"held":false,"streamed":true,"first_byte_s":0.1,"seconds":1.25,"run":"3.1"'
    begin = NOON - 23 * 3600
    path = tmp_path / "requests.jsonl"
    path.write_text(
        "".join(
            f'{{"at":{begin + k / 4:.3f},"model":"{"small" if k % 2 else "other"}",{facts}}}\n' for k in range(250_000)
        )
    )
    os.utime(path, (NOON, NOON))
    begun = time.process_time()
    seen = seen_of(tmp_path, "small", since=begin)
    read = time.process_time()
    assert len(seen.requests) == 125_000 - 2
    hours, taken = Hours(tmp_path), list[int]()
    take = hours._take

    def counts(file: Any, at: int, *, oldest: int) -> int:
        taken.append(take(file, at, oldest=oldest) - at)
        return at + taken[-1]

    hours._take = counts  # type: ignore[method-assign]
    hours.look(now=NOON)
    counted = time.process_time()
    assert sum(taken) > 10_000_000
    taken.clear()
    for _ in range(10):
        hours.look(now=NOON)
    assert sum(taken) == 0
    assert sum(hours.of("small", now=NOON)) == 125_000 - sum(
        begin + k / 4 < NOON // 3600 * 3600 - 23 * 3600 for k in range(1, 250_000, 2)
    )
    assert read - begun < 3
    assert counted - read < 3


def test_lines_of_another_order_are_read_one_by_one(tmp_path: Path) -> None:
    rows = [line(10.0), json.dumps({"model": "small", "seconds": 2.0, "at": 20.0, "run": None, "status": 200}) + "\n"]
    (tmp_path / "requests.jsonl").write_text("".join(rows))
    assert seen_of(tmp_path, "small", since=0).requests == ((9.0, 1.0), (18.0, 2.0))


def test_files_come_the_oldest_first(tmp_path: Path) -> None:
    for age, name in enumerate(("requests.jsonl", "requests.old.jsonl", "requests.2.jsonl.gz")):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    assert [path.name for path in files_in(tmp_path)] == ["requests.2.jsonl.gz", "requests.old.jsonl", "requests.jsonl"]
