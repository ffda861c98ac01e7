"""The fake backend keeps the same contract, so that control's tests may trust it."""

from __future__ import annotations

import pytest

from tenure.domain.attempt import AttemptSpec, Process
from tenure.domain.ids import JobId, run_id
from tenure.domain.job import JobSpec
from tenure.testing.backend_contract import BackendContract, News
from tenure.testing.fake_backend import FakeBackend, World


class FakeRig:
    def __init__(self) -> None:
        self.world = World(unstartable={"nope"})
        self._count = 0
        self.restart()

    def restart(self) -> None:
        self.news = News()
        self.backend = FakeBackend(self.world)
        self.backend.open(self.news)

    def _attempt(self, argv: tuple[str, ...], processes: int = 1) -> AttemptSpec:
        self._count += 1
        job = JobId(str(self._count))
        return AttemptSpec(
            run_id=run_id(job, 1), job_id=job, number=1, run_dir=f"/nowhere/{job}", job=JobSpec(name="x", argv=argv, processes=processes),
            env={}, processes=tuple(Process(rank=k) for k in range(processes)),
        )  # fmt: skip

    def attempt(self, *, processes: int = 1, stubborn: bool = False) -> AttemptSpec:
        attempt = self._attempt(("waits",), processes)
        if stubborn:
            self.world.stubborn.add(attempt.run_id)
        return attempt

    def ready(self, attempt: AttemptSpec) -> None:
        """In memory everything is at once."""

    def unstartable(self) -> AttemptSpec:
        return self._attempt(("nope",))

    def end(self, attempt: AttemptSpec, exit_code: int, *, rank: int = 0) -> None:
        self.backend.finish(attempt.run_id, exit_code, rank=rank)


@pytest.fixture
def rig() -> FakeRig:
    return FakeRig()


class TestFakeBackend(BackendContract):
    pass
