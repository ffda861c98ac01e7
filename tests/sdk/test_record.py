"""What lines mean together: the rules of a record, and reading that nothing on disk can break."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.sdk.lines import encode, format_time, parse, parse_time
from tenure.sdk.record import (
    Follower,
    Record,
    RecordWriter,
    diff,
    quiet,
    read_record,
    sign_of_life,
    stop_outcome_of,
    summary,
)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / '训练 "x" $(rm) \n'


def opened(run_dir: Path, *, by: str = "run", **more: object) -> RecordWriter:
    writer = RecordWriter(run_dir, by=by)
    writer.opened(run_id="7.2", job_id="7", attempt=2, retry_of="7.1", argv=["python", "-m", "数"], **more)  # type: ignore[arg-type]
    return writer


# --- what is written is what is read --------------------------------------------------------------------------------


def test_a_whole_run_is_read_back(run_dir: Path) -> None:
    supervisor = opened(run_dir, by="supervisor", environment={"driver": "560.1"}, code={"digest": "a"})
    run = opened(run_dir, config={"lr": 0.1}, quiet_after_s=60.0, name="digits")
    run.phase("train", "begin")
    run.phase("train", "end", 2.5)
    run.phase("test", "begin")
    run.checkpoint(10, "checkpoints/ten", "ab" * 32, 123)
    for step in range(5):
        run.metric(step, {"loss": 1.0 / (step + 1), "lr": 0.1})
    run.metric(5, {"loss": float("nan")})
    run.result("accuracy", 0.9)
    run.result("accuracy", 0.97)
    run.artifact("w.npz", "artifacts/w.npz", "cd" * 32, 9)
    run.closed("completed", exit_code=0)
    supervisor.closed("completed", exit_code=0)

    record = read_record(run_dir)
    assert (record.run_id, record.job_id, record.attempt, record.retry_of) == ("7.2", "7", 2, "7.1")
    assert record.name == "digits"
    assert record.argv == ["python", "-m", "数"]
    assert record.config == {"lr": 0.1}
    assert record.environment == {"driver": "560.1"}
    assert record.code == {"digest": "a"}
    assert record.quiet_after_s == 60.0
    assert [(phase["name"], phase["seconds"]) for phase in record.phases] == [("train", 2.5), ("test", None)]
    assert record.checkpoints[0]["step"] == 10
    assert record.results == {"accuracy": 0.97}
    assert record.metrics["loss"]["count"] == 6
    assert record.metrics["loss"]["last"] == "NaN"
    assert record.metrics["lr"]["step"] == 4
    assert record.artifacts[0]["name"] == "w.npz"
    assert record.outcome == "completed"
    assert record.damaged == 0

    shown = json.loads(json.dumps(summary(record)))
    assert shown["outcome"] == "completed"
    assert shown["state"] == "closed"
    assert parse_time(shown["closed_at"]) == record.ended_at
    assert shown["phases"][0]["begin_at"].endswith("Z")


def test_a_missing_run_directory_reads_as_an_empty_record(tmp_path: Path) -> None:
    record = read_record(tmp_path / "nowhere")
    assert record.run_id == ""
    assert record.outcome is None
    assert summary(record)["state"] == "open"


def test_wrong_words_are_refused_when_written(run_dir: Path) -> None:
    writer = opened(run_dir)
    with pytest.raises(ValueError, match="one of completed, failed"):
        writer.closed("done")
    with pytest.raises(ValueError, match="one of cancel, preempt"):
        writer.stop_requested("kill")
    with pytest.raises(ValueError, match="'begin' nor 'end'"):
        writer.phase("x", "start")
    with pytest.raises(ValueError, match="'at'"):
        writer.metric(1, {"at": 3})
    assert read_record(run_dir).damaged == 0


def test_without_metrics_only_the_record_is_read(run_dir: Path) -> None:
    run = opened(run_dir)
    run.metric(1, {"loss": 1.0})
    run.closed("completed")
    record = read_record(run_dir, metrics=False)
    assert (record.outcome, record.metrics) == ("completed", {})
    assert read_record(run_dir).metrics["loss"]["count"] == 1


# --- how a run ended ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marks", "outcome"),
    [
        ([], "interrupted"),
        (["preempt"], "interrupted"),
        (["evict", "time-limit", "shutdown"], "interrupted"),
        (["cancel"], "cancelled"),
        (["preempt", "cancel"], "cancelled"),
        (["cancel", "preempt"], "cancelled"),
    ],
)
def test_the_mark_decides_how_a_stopped_run_ends(run_dir: Path, marks: list[str], outcome: str) -> None:
    daemon = opened(run_dir, by="supervisor")
    for mark in marks:
        daemon.stop_requested(mark, reason=f"because-{mark}", by="ann")
    assert stop_outcome_of(run_dir) == outcome
    assert [mark["reason"] for mark in read_record(run_dir).stops] == [f"because-{mark}" for mark in marks]


def test_a_run_that_completed_and_was_then_killed_stays_completed(run_dir: Path) -> None:
    run = opened(run_dir)
    run.closed("completed", exit_code=0)
    RecordWriter(run_dir, by="supervisor").closed("interrupted", exit_code=137, signal=9, reason="Killed")
    record = read_record(run_dir)
    assert record.outcome == "completed"
    assert record.closed is not None
    assert (record.closed["by"], record.closed["exit_code"], record.closed["signal"]) == ("run", 137, 9)
    assert record.closed["reason"] == ""


def test_the_first_word_stands_whoever_says_it(run_dir: Path) -> None:
    supervisor = opened(run_dir, by="supervisor")
    supervisor.closed("failed", exit_code=1, reason="Exited")
    RecordWriter(run_dir).closed("completed")
    record = read_record(run_dir)
    assert record.outcome == "failed"
    assert record.closed is not None
    assert record.closed["by"] == "supervisor"


@pytest.mark.parametrize(
    ("own", "theirs", "outcome", "reason"),
    [
        ("interrupted", "cancelled", "cancelled", "user"),  # the cancel was marked while the run was on its way out
        ("interrupted", "failed", "failed", "user"),  # a time limit
        ("failed", "interrupted", "interrupted", "user"),  # a worker raised because it was told to stop
        ("failed", "failed", "failed", "Own"),
        ("failed", "completed", "failed", "Own"),
        ("completed", "interrupted", "completed", "Own"),
        ("completed", "failed", "completed", "Own"),
    ],
)
def test_what_the_supervisor_knows_of_a_stop_stands(
    run_dir: Path, own: str, theirs: str, outcome: str, reason: str
) -> None:
    opened(run_dir).closed(own, exit_code=1, reason="Own", message="own", traceback="Traceback …")
    RecordWriter(run_dir, by="supervisor").closed(theirs, exit_code=143, signal=15, reason="user")
    record = read_record(run_dir)
    assert record.closed is not None
    assert (record.outcome, record.closed["reason"]) == (outcome, reason)
    assert (record.closed["exit_code"], record.closed["signal"]) == (143, 15)
    assert (record.closed["message"], record.closed["traceback"]) == ("own", "Traceback …")


def test_the_reaper_is_superseded_by_any_later_word(run_dir: Path) -> None:
    run = opened(run_dir, quiet_after_s=1.0)
    reaper = RecordWriter(run_dir, by="reaper")
    reaper.closed("failed", reason="Quiet")
    record = read_record(run_dir)
    assert (record.outcome, record.healed) == ("failed", False)

    run.phase("train", "begin")
    record = read_record(run_dir)
    assert (record.outcome, record.closed, record.healed) == (None, None, True)

    reaper.closed("failed", reason="Quiet")
    assert read_record(run_dir).outcome == "failed"
    run.closed("completed", exit_code=0)
    record = read_record(run_dir)
    assert (record.outcome, record.healed) == ("completed", True)
    reaper.closed("failed", reason="Quiet")
    assert read_record(run_dir).outcome == "completed"


@pytest.mark.parametrize("sign", ["heartbeat", "metric"])
def test_a_beat_or_a_metric_after_the_reaper_heals_whatever_the_clock_says(run_dir: Path, sign: str) -> None:
    run = opened(run_dir)
    beat = run_dir / "heartbeat"
    beat.touch()
    run.metric(1, {"loss": 1.0})
    RecordWriter(run_dir, by="reaper").closed("failed", reason="Quiet")
    future = 4_000_000_000
    follower = Follower(run_dir)
    assert follower.poll().outcome == "failed"
    if sign == "heartbeat":
        os.utime(beat, (future - 7200, future - 7200))
        os.utime(beat, (1, 1))  # long before the reaper by the clock, and yet news
    else:
        run.metric(2, {"loss": 0.5})
    assert follower.poll().healed
    record = read_record(run_dir)
    assert (record.outcome, record.healed) == (None, True)


def test_a_clock_that_jumped_back_heals_nothing(run_dir: Path) -> None:
    run = opened(run_dir)
    run.metric(1, {"loss": 1.0})
    (run_dir / "heartbeat").touch()
    os.utime(run_dir / "heartbeat", (4_000_000_000, 4_000_000_000))  # beaten before the clock was set back
    RecordWriter(run_dir, by="reaper").closed("failed", reason="Quiet")
    assert read_record(run_dir).outcome == "failed"


def test_a_second_study_in_the_same_job_opens_the_run_again(run_dir: Path) -> None:
    first = opened(run_dir)
    first.closed("completed", exit_code=0)
    second = opened(run_dir)
    assert read_record(run_dir).outcome is None
    second.closed("failed", exit_code=1, reason="ValueError")
    assert read_record(run_dir).outcome == "failed"


def test_a_gang_is_complete_when_all_of_it_is(run_dir: Path) -> None:
    run = opened(run_dir, rank=0, world_size=2)
    run.line("member", rank=1, outcome="failed", reason="ValueError")
    run.closed("completed", exit_code=0, rank=0)
    assert read_record(run_dir).outcome == "completed"
    RecordWriter(run_dir, by="supervisor").closed("failed", exit_code=1, reason="GangMemberFailed")
    record = read_record(run_dir)
    assert (record.outcome, record.members[1]["reason"]) == ("failed", "ValueError")


def test_quiet_is_what_the_run_declared(run_dir: Path) -> None:
    opened(run_dir, by="supervisor")
    assert not quiet(read_record(run_dir), 1e9)
    run = opened(run_dir, quiet_after_s=10.0)
    assert not quiet(read_record(run_dir), 10.0)
    assert quiet(read_record(run_dir), 10.1)
    run.line("quiet_after", quiet_after_s=600.0)
    assert not quiet(read_record(run_dir), 599.0)
    run.line("quiet_after")
    assert not quiet(read_record(run_dir), 1e9)
    opened(run_dir, quiet_after_s=10.0).closed("completed")
    assert not quiet(read_record(run_dir), 1e9)


def test_a_sign_of_life_changes_with_every_sign(run_dir: Path) -> None:
    run = opened(run_dir)
    seen = [sign_of_life(run_dir)]
    run.phase("x", "begin")
    seen.append(sign_of_life(run_dir))
    run.metric(1, {"x": 1})
    seen.append(sign_of_life(run_dir))
    (run_dir / "heartbeat").touch()
    seen.append(sign_of_life(run_dir))
    assert len(set(seen)) == 4
    assert sign_of_life(run_dir) == seen[-1]


# --- damage ---------------------------------------------------------------------------------------------------------


def cut(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.truncate(at)


@given(data=st.data())
def test_a_cut_at_any_byte_loses_the_cut_line_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    run_dir = tmp_path_factory.mktemp("cut")
    writer = RecordWriter(run_dir)
    names = data.draw(st.lists(st.text(max_size=8), min_size=1, max_size=6))
    ends = [0]
    for number, name in enumerate(names):
        writer.result(f"{number} {name}", name)
        ends.append((run_dir / "record.jsonl").stat().st_size)
    at = data.draw(st.integers(0, ends[-1]))
    cut(run_dir / "record.jsonl", at)
    late = RecordWriter(run_dir) if data.draw(st.booleans()) else writer  # a new process, or one that lived through it
    late.result("after", 1)
    late.result("after that", 2)
    expected = {f"{i} {name}": name for i, name in enumerate(names) if ends[i + 1] <= at + 1}
    expected = {key: value for key, value in expected.items()}
    results = read_record(run_dir).results
    assert results.pop("after") == 1
    assert results.pop("after that") == 2
    assert {k: v for k, v in expected.items() if ends[int(k.split(" ", 1)[0]) + 1] <= at}.items() <= results.items()
    assert results.items() <= expected.items()


@given(st.binary(max_size=300))
def test_garbage_between_lines_costs_no_line(garbage: bytes) -> None:
    line = encode({"v": 1, "at": format_time(0), "kind": "result", "name": "x", "value": 'é\n"}'}).encode()
    read = [list(parse(piece)) for piece in (garbage + line).split(b"\n")]
    assert any(found.get("name") == "x" for pieces in read for found in pieces)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=12,
    )
)
def test_the_encoder_writes_json(value: object) -> None:
    text = encode(value)
    assert "\n" not in text
    assert json.loads(text) == value


@given(
    st.dictionaries(st.sampled_from(["name", "state", "step", "rank", "outcome", "values", "path", "stop", "lines"]),
                    st.none() | st.integers() | st.text() | st.lists(st.integers()) | st.dictionaries(st.text(), st.text())),
    st.text() | st.sampled_from(["opened", "config", "code", "phase", "checkpoint", "result", "closed", "member", "lost"]),
)  # fmt: skip
def test_no_line_can_break_the_reader(fields: dict[str, object], kind: str) -> None:
    record = Record()
    record.feed({"v": 1, "at": "2026-11-29T21:30:00.000000Z", "kind": kind, **fields})
    record.feed({"kind": kind, "at": 3, **fields})
    assert json.dumps(summary(record))


def test_unknown_kinds_bad_utf8_and_nulls_are_passed_over(run_dir: Path) -> None:
    writer = opened(run_dir)
    with (run_dir / "record.jsonl").open("ab") as file:
        file.write(b'{"v":1,"at":"2026-11-29T21:30:00.000000Z","kind":"from-the-future","x":[1]}\n')
        file.write(b'{"v":1,"at":"2026-11-29T21:30:00.000000Z","kind":"result","name":"r\xff","value":1}\n')
        file.write(b"\0\0\0\0\n[1]\n\xff\xfe\n" + b"[" * 100_000 + b"\n")
    writer.closed("completed")
    record = read_record(run_dir)
    assert record.outcome == "completed"
    assert record.results == {"r�": 1}
    assert record.damaged == 4


def test_arguments_that_are_no_utf8_survive(run_dir: Path) -> None:
    word = os.fsdecode(b"data-\xff\xfe.csv")
    RecordWriter(run_dir).opened(run_id="r", argv=[word])
    assert read_record(run_dir).argv == [word]
    (run_dir / "record.jsonl").read_bytes().decode()  # the file itself is UTF-8


def test_a_follower_reads_only_what_is_new_and_waits_for_newlines(run_dir: Path) -> None:
    follower = Follower(run_dir)
    assert follower.poll().run_id == ""
    writer = opened(run_dir)
    record = follower.poll()
    assert record.run_id == "7.2"
    half = b'{"v":1,"at":"2026-11-29T21:30:00.000000Z","kind":"result","name":"x","value":1}'
    with (run_dir / "record.jsonl").open("ab", buffering=0) as file:
        file.write(half)
        assert follower.poll().results == {}
        assert read_record(run_dir).results == {"x": 1}
        file.write(b"\n")
    assert follower.poll().results == {"x": 1}
    assert follower.poll() is record
    writer.metric(1, {"loss": 1})
    assert follower.poll().metrics["loss"]["count"] == 1
    cut(run_dir / "record.jsonl", 0)
    assert follower.poll().run_id == ""


@pytest.mark.parametrize("instant", [0, 1, 1_795_987_800_123_456, 253_402_300_799_999_999])
def test_times_are_rfc3339_with_microseconds(instant: int) -> None:
    text = format_time(instant)
    assert len(text) == 27
    assert parse_time(text) == instant


def test_times_in_other_spellings_are_read() -> None:
    assert parse_time("1970-01-01T01:00:00+01:00") == 0
    assert parse_time("1970-01-01T00:00:01Z") == 1_000_000
    assert parse_time("yesterday") is None
    assert parse_time(None) is None


# --- side by side ---------------------------------------------------------------------------------------------------


def test_two_runs_side_by_side(tmp_path: Path) -> None:
    for name, rate, numpy in (("a", 0.1, "1.0"), ("b", 0.2, "2.0")):
        writer = RecordWriter(tmp_path / name)
        writer.opened(run_id=name, config={"lr": rate, "same": 1, **({"only_b": 1} if name == "b" else {})},
                      environment={"packages": {"numpy": numpy}, "cpu": "x"})  # fmt: skip
        writer.result("accuracy", rate)
        writer.close()
    found = diff(read_record(tmp_path / "a"), read_record(tmp_path / "b"))
    assert (found["a"], found["b"]) == ("a", "b")
    assert found["config"] == [
        {"key": "lr", "a": 0.1, "b": 0.2, "same": False},
        {"key": "only_b", "a": None, "b": 1, "same": False, "only": "b"},
        {"key": "same", "a": 1, "b": 1, "same": True},
    ]
    assert {"key": "packages.numpy", "a": "1.0", "b": "2.0", "same": False} in found["environment"]  # type: ignore[operator]
    assert found["different"] == {"config": 2, "code": 0, "environment": 1, "results": 1, "metrics": 0, "outcome": 0}
