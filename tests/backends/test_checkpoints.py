"""TENURE_CHECKPOINT_DIR exists, and a job that comes back finds what it had written."""

from __future__ import annotations

from pathlib import Path

from tenure.backends.local.checkpoints import open_checkpoints


def _run(root: Path, name: str) -> Path:
    run = root / name
    run.mkdir()
    return run


def test_attempts_of_one_job_share_the_first_ones_directory_however_many(tmp_path: Path):
    before = None
    for number in range(1, 101):
        run = _run(tmp_path, f"7.{number}")
        open_checkpoints(run, before, same_job=True)
        (run / "checkpoints" / f"step-{number}").write_text("x")
        before = str(run)
    assert len(list((tmp_path / "7.1" / "checkpoints").iterdir())) == 100
    moved = tmp_path.rename(tmp_path.with_name("moved"))  # a home may be moved or copied
    assert (moved / "7.100" / "checkpoints" / "step-1").read_text() == "x"


def test_two_retries_of_one_job_start_from_its_files_and_keep_out_of_each_others_way(tmp_path: Path):
    old = _run(tmp_path, "7.1")
    open_checkpoints(old, None, same_job=False)
    (old / "checkpoints" / "deep").mkdir()
    (old / "checkpoints" / "deep" / "step-1").write_text("one")
    runs = [_run(tmp_path, name) for name in ("8.1", "9.1")]
    for run in runs:
        open_checkpoints(run, str(old), same_job=False)
        assert (run / "checkpoints" / "deep" / "step-1").read_text() == "one"
        (run / "checkpoints" / "step-2").write_text(run.name)
    assert [(run / "checkpoints" / "step-2").read_text() for run in runs] == ["8.1", "9.1"]
    assert not (old / "checkpoints" / "step-2").exists()


def test_opening_twice_changes_nothing(tmp_path: Path):
    run = _run(tmp_path, "7.1")
    open_checkpoints(run, None, same_job=False)
    (run / "checkpoints" / "kept").touch()
    open_checkpoints(run, str(tmp_path / "gone"), same_job=True)
    assert (run / "checkpoints" / "kept").exists()
