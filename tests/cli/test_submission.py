"""What travels with a job from the shell that submitted it."""

from __future__ import annotations

from tenure.cli.submission import submitter_environment


def test_the_environment_travels_without_the_platforms_secrets() -> None:
    env = {
        "PATH": "/bin",
        "HOME": "/h",
        "TENURE_HOME": "/t",
        "TENURE_TOKEN": "secret",
        "TENURE_LEDGER_URL": "postgresql://u:p@h/d",
        "RANK": "3",
    }
    kept, left = submitter_environment(env)
    assert kept == {"PATH": "/bin", "HOME": "/h", "TENURE_HOME": "/t", "RANK": "3"}
    assert left == []


def test_a_job_that_submits_hands_on_no_rank_and_no_run_of_its_own() -> None:
    inside = {
        "PATH": "/bin", "TENURE_HOME": "/t", "TENURE_JOB_ID": "7", "TENURE_RUN_DIR": "/r", "TENURE_ATTEMPT": "1",
        "RANK": "3", "WORLD_SIZE": "4", "CUDA_VISIBLE_DEVICES": "GPU-1", "SLURM_JOB_ID": "7", "MINE": "1",
    }  # fmt: skip
    kept, _ = submitter_environment(inside)
    assert kept == {"PATH": "/bin", "TENURE_HOME": "/t", "MINE": "1"}


def test_what_is_not_text_stays_behind_by_name() -> None:
    kept, left = submitter_environment({"GOOD": "ü", "BAD": "\udcff"})
    assert (kept, left) == ({"GOOD": "ü"}, ["BAD"])
