"""Run: a study's own record while it runs.

It works the same with a platform and without one.  On the platform the run directory, the checkpoints and the attempt
before are given by the environment; without it a run makes a directory for itself.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from .checkpoints import Checkpoint, Checkpoints, Content, write_whole
from .ending import ending
from .environment import environment
from .fingerprint import fingerprint, hash_file, imported_files
from .heartbeat import Heartbeat
from .lines import encode
from .place import OWNER, PARENT, Place, find_place, own_identity
from .record import RecordWriter
from .stopping import StopSignals

__all__ = ["Run", "current_run"]

QUIET_AFTER_S = 300.0
_LARGEST_RESULT = 1 << 20
_runs: list[Run] = []


def current_run() -> Run | None:
    """The run that this process is in, from any thread; None outside one."""
    return _runs[-1] if _runs else None


class Run:
    """One run.  Use it as a context manager; `@tenure.study` does that for you.

    Entering opens the record, starts the heartbeat and listens for SIGTERM and SIGINT; leaving closes it:

    - left normally: `completed`; by an exception: `failed`; by a stop: `cancelled` if a cancel was marked in the
      record, else `interrupted`; by Ctrl-C with no platform: `cancelled`;
    - left normally after the study was told of a stop (`stopping` was True, `check()` raised): as by the stop, because what
      was given up half-way is not complete.

    `quiet_after_s`: the silence after which the run may be taken for dead (None: never).  `keep`: how many checkpoints
    stay (None: all).  Numbers logged while the disk is full are dropped with a warning; whatever else cannot be written
    raises OSError, so that nothing is claimed that is not on record.
    """

    def __init__(
        self,
        name: str,
        config: Mapping[str, object] | None = None,
        *,
        quiet_after_s: float | None = QUIET_AFTER_S,
        keep: int | None = None,
        directory: str | os.PathLike[str] | None = None,
        resume_from: str | None = None,
    ) -> None:
        if quiet_after_s is not None and quiet_after_s <= 0:
            raise ValueError(f"quiet_after_s={quiet_after_s}: a bound on silence is longer than no time")
        self.name = name
        self.config: dict[str, object] = dict(config or {})
        self.outcome: str | None = None
        self.exit_code: int | None = None
        self.closed_itself = False  # is its end on record?
        self._quiet_after_s, self._keep = quiet_after_s, keep
        self._directory, self._resume_from = directory, resume_from
        self._pid = 0
        self._stop = StopSignals()
        self._interruptible: contextlib.AbstractContextManager[None] | None = None
        self._lost = 0
        self._env_before: dict[str, str | None] = {}

    # --- what it is ---------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self._place.run_id

    @property
    def directory(self) -> Path:
        return self._place.directory

    @property
    def job_id(self) -> str | None:
        return self._place.job_id

    @property
    def attempt(self) -> int | None:
        return self._place.attempt

    @property
    def rank(self) -> int:
        """Of this process in its gang; 0 for a run of one process."""
        return self._place.rank or 0

    @property
    def opened(self) -> bool:
        return self._pid == os.getpid()

    @property
    def on_platform(self) -> bool:
        return self._place.platform

    # --- what it says -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A named span of the run: `with run.phase("load"): …`.  Its length is by the monotonic clock."""
        begin = time.monotonic()
        self._tolerant(lambda: self._writer.phase(name, "begin"))
        try:
            yield
        finally:
            seconds = round(time.monotonic() - begin, 6)
            self._tolerant(lambda: self._writer.phase(name, "end", seconds))

    def log(self, values: Mapping[str, object] | None = None, /, *, step: int | None = None, **more: object) -> None:
        """Metrics: `run.log(step=3, loss=0.2)`, or a mapping for names that are no identifiers."""
        numbers = {**(values or {}), **more}
        if numbers:
            self._tolerant(lambda: self._writer.metric(step, numbers))

    def result(self, values: Mapping[str, object] | None = None, /, **more: object) -> None:
        """Results: `run.result(accuracy=0.97)`.  The last value of a name counts.  Raises ValueError above 1 MiB."""
        with self._stop.uncut():
            for name, value in {**(values or {}), **more}.items():
                if len(encode(value)) > _LARGEST_RESULT:
                    raise ValueError(f"the result {name!r} is larger than 1 MiB; write it as an artifact")
                self._writer.result(name, value)

    def artifact(self, name: str | os.PathLike[str], data: Content | Mapping[str, object] | None = None) -> Path:
        """Keep a file with the run and return where it lies.

        With `data` (bytes, text, a mapping for JSON, or a function that writes to a binary file) it is made under `name`
        in the run's `artifacts/`; without, `name` is an existing file, which is copied there unless it is there already.
        Written under another name first, so that nobody sees half of it; a later one of the same name replaces it.
        """
        folder = self.directory / "artifacts"
        if data is None:
            source = Path(name).absolute()
            if not source.is_file():
                raise FileNotFoundError(f"{source} is no file; give the artifact's data as the second argument")
            if source.is_relative_to(folder):
                sha256, size = hash_file(source), source.stat().st_size
                with self._stop.uncut():
                    self._writer.artifact(str(source.relative_to(folder)), self._shown(source), sha256, size)
                return source
            shown = source.name
            content: Content = _copier(source)
        else:
            shown = os.fspath(name)
            content = encode(data) + "\n" if isinstance(data, Mapping) else data
        parts = Path(shown).parts
        if not parts or Path(shown).is_absolute() or ".." in parts:
            raise ValueError(f"an artifact's name is a path below the run's artifacts, not {shown!r}")
        with self._stop.uncut():
            path, sha256, size = write_whole(folder, lambda _: shown, content, replace=True)
            self._writer.artifact(shown, self._shown(path), sha256, size)
        return path

    def checkpoint(self, step: int, write: Content) -> Checkpoint:
        """Keep the state after `step`: bytes, or a function that writes to a binary file (`lambda f: np.savez(f, …)`).

        When it returns the checkpoint is whole and on the disk.  A stop that arrives meanwhile waits.  Raises OSError.
        """
        with self._stop.uncut():
            made = self._checkpoints.write(step, write)
            self._writer.checkpoint(step, self._shown(made.path), made.sha256, made.size)
            return made

    def resume(self) -> Checkpoint | None:
        """The latest intact checkpoint of this run or of those it continues; None to begin from the beginning."""
        found = self._checkpoints.latest()
        if found is not None:
            self._writer.line("resumed", step=found.step, path=self._shown(found.path), sha256=found.sha256)
        return found

    def quiet_after(self, seconds: float | None) -> None:
        """Declare another bound on silence (None: none), for instance before a long step that cannot beat."""
        self._quiet_after_s = seconds
        self._heartbeat.retime(seconds)
        self._writer.line("quiet_after", quiet_after_s=seconds)

    # --- being stopped ------------------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        """Has a stop been asked for?  Who asks this once is no longer interrupted by the first signal."""
        return self._stop.stopping

    def check(self) -> None:
        """Raise Interrupted if a stop was asked for."""
        self._stop.check()

    def sleep(self, seconds: float) -> None:
        """Sleep, but not past a request to stop."""
        self._stop.sleep(seconds)

    # --- its life -----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._stop.install()  # first: a stop that comes while the record is being opened is heard, too
        try:
            self._enter()
        except BaseException:
            self._stop.restore()
            raise
        return self

    def begin(self) -> None:
        """Raise Interrupted if a stop came before the study's first step."""
        if self._stop.signum is not None:
            self._stop.check()

    def _enter(self) -> None:
        self._place: Place = find_place(self.name, directory=self._directory, resume_from=self._resume_from)
        self._pid = os.getpid()
        place = self._place
        prefix = f"rank{place.rank}-" if place.rank else ""
        self._checkpoints = Checkpoints(place.checkpoints, chain=place.chain, prefix=prefix, keep=self._keep)
        self._writer = RecordWriter(place.directory)
        self._open()
        self._heartbeat = Heartbeat(self._writer, self._quiet_after_s)
        self._heartbeat.start()
        for name, value in ((OWNER, own_identity(place.directory)), (PARENT, place.run_id)):
            self._env_before[name] = os.environ.get(name)
            os.environ[name] = value
        _runs.append(self)
        self._interruptible = self._stop.interruptible()
        self._interruptible.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._interruptible is not None:
            self._interruptible.__exit__(None, None, None)
        if os.getpid() != self._pid:  # a fork that fell out of the study is not the run
            return
        try:
            self._close(problem)
        finally:
            self._stop.restore()
            self._heartbeat.stop()
            if self in _runs:
                _runs.remove(self)
            for name, value in self._env_before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            self._writer.close()

    def _open(self) -> None:
        place = self._place
        if place.rank:  # rank 0 speaks for the gang
            return
        code = None
        if not place.before.code:
            script = getattr(sys.modules.get("__main__"), "__file__", None)
            code = fingerprint(os.getcwd(), [script] if script else [])
        self._writer.opened(
            run_id=place.run_id, job_id=place.job_id, attempt=place.attempt, retry_of=place.retry_of,
            argv=[sys.executable, *sys.orig_argv[1:]], config=self.config, code=code, environment=environment(),
            quiet_after_s=self._quiet_after_s, name=self.name, parent=place.parent, pid=self._pid, rank=place.rank,
            world_size=place.world_size,
        )  # fmt: skip

    def _close(self, problem: BaseException | None) -> None:
        end = ending(problem, self._stop, directory=self.directory, platform=self._place.platform)
        self.outcome, self.exit_code = end.outcome, end.exit_code
        if self._lost:
            self._tolerant(lambda: self._writer.line("lost", lines=self._lost))
        if self._place.rank:
            self._writer.line("member", rank=self._place.rank, outcome=end.outcome, **end.words())
            self.closed_itself = True
            return
        self._tolerant(lambda: self._writer.code(imported_files()))
        self._writer.closed(end.outcome, rank=self._place.rank, **end.words())  # type: ignore[arg-type]
        self.closed_itself = True
        if end.outcome == "completed":
            self._writer.sync()  # a result that was announced survives a power loss

    def _shown(self, path: Path) -> str:
        path = path.absolute()
        return str(path.relative_to(self.directory)) if path.is_relative_to(self.directory) else str(path)

    def _tolerant(self, write: Callable[[], None]) -> None:
        """For lines whose loss must not end hours of work."""
        try:
            write()
        except OSError as problem:
            if not self._lost:
                print(f"tenure: {problem}: metrics and phases are being lost", file=sys.stderr, flush=True)
            self._lost += 1


def _copier(source: Path) -> Callable[[IO[bytes]], object]:
    def copy(target: IO[bytes]) -> None:
        with source.open("rb") as file:
            shutil.copyfileobj(file, target, 1 << 20)

    return copy
