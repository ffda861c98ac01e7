"""`@tenure.study`: a function with a typed spec becomes an experiment, callable from Python and from the command line.

Exit codes of the command line: 0 completed, 1 failed (or what the study passed to `sys.exit`), 2 usage, 74 the record could
not be written, 128+N stopped by signal N (143 for SIGTERM, 130 for Ctrl-C).
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import sys
import traceback
import types
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, NoReturn, TypeVar, Union, get_args, get_origin, overload

from .lines import plain
from .run import QUIET_AFTER_S, Run, current_run
from .spec import REQUIRED, Parameter, Spec, SpecError, convert, read_file
from .stopping import Interrupted

__all__ = ["Study", "study"]

R = TypeVar("R")
_EX_IOERR = 74


class Study(Generic[R]):
    """A study function.  Calling it makes one run and returns (or raises) what the function does.

    It takes its spec as the function does, without the run: `digits(Spec(epochs=2))`, or field by field,
    `digits(epochs=2)`.  Called within a run it becomes a phase of that run.  Raises SpecError (a ValueError) for
    parameters that cannot be used, before any record is opened.
    """

    def __init__(
        self, function: Callable[..., R], *, name: str | None, quiet_after_s: float | None, keep: int | None
    ) -> None:
        self.function, self.quiet_after_s, self.keep = function, quiet_after_s, keep
        self.name = name or function.__name__
        self.spec = Spec(function, Run)
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__
        self.__wrapped__ = function

    def __call__(self, spec: object = None, /, **values: object) -> R:
        if spec is not None and values:
            raise TypeError(f"{self.name}() takes a spec or its fields, not both")
        built = spec if spec is not None else self.spec.build(values)
        if spec is not None and (self.spec.dataclass is None or not isinstance(spec, self.spec.dataclass)):
            wanted = self.spec.dataclass.__name__ if self.spec.dataclass else "keyword parameters"
            raise TypeError(f"{self.name}() takes {wanted}, not {type(spec).__name__}")
        return self._run(built, None)

    def main(self, argv: Sequence[str] | None = None) -> NoReturn:
        """Run from the command line (`argv` without the program's name; sys.argv by default) and exit."""
        built, resume_from = self._read(sys.argv[1:] if argv is None else argv)
        sys.exit(self._exit_code(built, resume_from))

    def parser(self) -> argparse.ArgumentParser:
        """The command line, made from the spec."""
        about = (self.__doc__ or "").strip().split("\n\n")[0]
        parser = argparse.ArgumentParser(description=about, allow_abbrev=False)
        taken = {parameter.name for parameter in self.spec.parameters}
        for parameter in self.spec.parameters:
            _add(parser, parameter)
        if "config" not in taken:
            parser.add_argument("--config", metavar="FILE", help="parameters from a .json or .toml file")
        if "resume" not in taken:
            parser.add_argument(
                "--resume", metavar="RUN", help="without a platform: continue this run (id or directory)"
            )
        return parser

    def _read(self, argv: Sequence[str]) -> tuple[Any, str | None]:
        parser = self.parser()
        known, strange = parser.parse_known_args(argv)
        if strange:
            parser.error(_strange(strange, parser))
        given = vars(known)
        taken = {parameter.name: parameter for parameter in self.spec.parameters}
        file = given.pop("config", None) if "config" not in taken else None
        resume_from = given.pop("resume", None) if "resume" not in taken else None
        try:
            values = read_file(file) if file is not None else {}
            for name, text in given.items():
                value = convert(text, taken[name].hint, "--" + name.replace("_", "-"), text=True)
                _put(values, name, value)
            return self.spec.build(values), resume_from
        except SpecError as problem:
            parser.error(str(problem))

    def _exit_code(self, built: Any, resume_from: str | None) -> int:
        run: list[Run] = []
        try:
            self._run(built, resume_from, run.append)
        except Interrupted as stopped:
            print(f"{self.name}: {run[0].outcome if run else 'stopped'}: {stopped}", file=sys.stderr)
            return 128 + stopped.signum
        except KeyboardInterrupt:
            print(f"{self.name}: {run[0].outcome if run else 'stopped'}", file=sys.stderr)
            return 130
        except SystemExit as problem:
            if isinstance(problem.code, str):
                print(problem.code, file=sys.stderr)
            return problem.code if isinstance(problem.code, int) else int(problem.code is not None)
        except OSError as problem:
            if run and run[0].outcome == "failed" and run[0].closed_itself:
                traceback.print_exc()
                return 1
            print(f"{self.name}: the record could not be written: {problem}", file=sys.stderr)
            return _EX_IOERR
        except BaseException:
            traceback.print_exc()
            return 1
        return run[0].exit_code or 0

    def _run(self, built: Any, resume_from: str | None, tell: Callable[[Run], None] | None = None) -> R:
        arguments = self.spec.arguments(built)
        outer = current_run()
        if outer is not None:
            if self.spec.run_parameter is not None:
                arguments[self.spec.run_parameter] = outer
            with outer.phase(self.name):
                return self.function(**arguments)
        config = plain(built)
        run = Run(
            self.name, config if isinstance(config, dict) else {}, quiet_after_s=self.quiet_after_s, keep=self.keep,
            resume_from=resume_from,
        )  # fmt: skip
        if self.spec.run_parameter is not None:
            arguments[self.spec.run_parameter] = run
        if tell is not None:
            tell(run)
        try:
            with run:
                run.begin()
                if tell is not None and not run.on_platform:
                    print(f"{self.name}: run {run.id} in {run.directory}", file=sys.stderr)
                value = self.function(**arguments)
            return value
        except (Interrupted, KeyboardInterrupt) as late:
            if (
                run.opened and not run.closed_itself
            ):  # a signal between the study's last step and the run's first one out
                run.__exit__(type(late), late, late.__traceback__)
            raise


@overload
def study(function: Callable[..., R], /) -> Study[R]: ...
@overload
def study(
    *, name: str | None = None, quiet_after_s: float | None = QUIET_AFTER_S, keep: int | None = None
) -> Callable[[Callable[..., R]], Study[R]]: ...
def study(
    function: Callable[..., R] | None = None,
    /,
    *,
    name: str | None = None,
    quiet_after_s: float | None = QUIET_AFTER_S,
    keep: int | None = None,
) -> Study[R] | Callable[[Callable[..., R]], Study[R]]:
    """Make a study of a function that takes a typed spec: a dataclass, or plain keyword parameters.

    A parameter called `run` (or annotated `tenure.Run`) is given the Run.  `quiet_after_s`: the silence in seconds after
    which a run may be taken for dead, None for never.  `keep`: how many checkpoints stay, None for all.
    """

    def wrap(function: Callable[..., R]) -> Study[R]:
        return Study(function, name=name, quiet_after_s=quiet_after_s, keep=keep)

    return wrap if function is None else wrap(function)


def _add(parser: argparse.ArgumentParser, parameter: Parameter) -> None:
    dashed = "--" + parameter.name.replace("_", "-")
    flags = list(dict.fromkeys((dashed, "--" + parameter.name)))
    hint = get_args(parameter.hint)[0] if get_origin(parameter.hint) is Annotated else parameter.hint
    bare = _without_none(hint)
    help_text = parameter.help.replace("%", "%%")
    if parameter.default is REQUIRED:
        help_text = f"{help_text} (required)".strip()
    else:
        shown = str(plain(parameter.default)).replace("%", "%%")
        help_text = f"{help_text} (default: {shown})".strip()
    options: dict[str, Any] = {"dest": parameter.name, "default": argparse.SUPPRESS, "help": help_text}
    if bare is bool:
        parser.add_argument(*flags, action=argparse.BooleanOptionalAction, **options)
        return
    if (get_origin(bare) or bare) in (list, tuple, set, frozenset):
        options["nargs"] = "*"
        bare = next(iter(get_args(bare)), str)
    parser.add_argument(*flags, metavar=getattr(bare, "__name__", "value").upper(), **options)


def _strange(words: Sequence[str], parser: argparse.ArgumentParser) -> str:
    flag = words[0].partition("=")[0]
    near = difflib.get_close_matches(flag, parser._option_string_actions, n=1) if flag.startswith("-") else []
    hint = f"; did you mean {near[0]}?" if near else "; --help lists what there is"
    return f"{flag} is no parameter of this study{hint}"


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        return kinds[0] if len(kinds) == 1 else hint
    return hint


def _put(values: dict[str, object], name: str, value: object) -> None:
    *folders, last = name.split(".")
    for folder in folders:
        inner = values.setdefault(folder, {})
        if not isinstance(inner, dict):
            inner = dataclasses.asdict(inner) if dataclasses.is_dataclass(inner) else {}  # type: ignore[arg-type]
            values[folder] = inner
        values = inner
    values[last] = value
