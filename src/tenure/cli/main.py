"""The program `tenure`: finds the verb, reads its words, runs it, and turns every error into a sentence and a code.

Exit codes: the job's own; 1 the work failed or the platform said no; 2 usage; 69 the platform cannot be reached; 70 a bug;
74 the answer could not be written; 124 timed out; 128+N ended by signal N.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from .grammar import Usage, Verb, nearest, parse
from .verbs import ALIASES, VERBS

if TYPE_CHECKING:
    from .call import Call
    from .client import Refused

__all__ = ["VerbModule", "main", "module_of", "unwritten"]

EX_UNAVAILABLE = 69
EX_SOFTWARE = 70
EX_IOERR = 74

_FLAGS = {"requests": "--request", "labels": "--label", "backoff_limit": "--retries"}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class VerbModule(Protocol):
    """What each file of a verb offers."""

    VERB: Verb

    def run(self, call: Call) -> int: ...


def module_of(name: str) -> VerbModule:
    return cast(VerbModule, import_module(f"tenure.cli.{name}"))


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    _stand_in_for_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        code = _main(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _silence()
        return 128 + 13
    except KeyboardInterrupt:
        return 128 + 2
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
            return unwritten(error)
        # Python's own code for this would be 1, which here means that the work failed.
        import traceback

        traceback.print_exc()
        print("tenure: this is a bug of tenure's; the lines above tell its story", file=sys.stderr)
        return EX_SOFTWARE


def _main(words: list[str]) -> int:
    if not words or words[0] in ("--help", "-h", "help"):
        from . import manual

        return manual.overview() if len(words) < 2 or words[0] != "help" else _help_of(words[1])
    if words[0] in ("--version", "-V"):
        words[0] = "version"
    name = ALIASES.get(words[0], words[0])
    if name not in VERBS:
        kind = "flag" if name.startswith("-") else "verb"
        return _complain(
            "", f"{words[0]!r} is not a {kind}{nearest(words[0], list(VERBS))} (`tenure --help` lists the verbs)"
        )
    module = module_of(name)
    try:
        parsed = parse(module.VERB, words[1:])
    except Usage as error:
        return _complain(name, str(error))
    if parsed.on("help"):
        return _help_of(name)
    return _run(name, module, parsed, words[0])


def _run(name: str, module: VerbModule, parsed: object, spoken: str) -> int:
    from tenure.domain.errors import InvalidRequest
    from tenure.settings import load

    from .call import Call
    from .client import Refused, Unreachable
    from .grammar import Parsed

    assert isinstance(parsed, Parsed)
    if spoken == "follow":
        parsed.switches.add("follow")
    try:
        settings = load()
    except InvalidRequest as error:
        return _complain(name, str(error))
    try:
        return module.run(Call(name, module.VERB, parsed, settings))
    except Usage as error:
        return _complain(name, str(error))
    except Unreachable as error:
        return _complain(name, str(error), code=EX_UNAVAILABLE)
    except Refused as error:
        return _refused(name, module.VERB, error)


def _refused(name: str, verb: Verb, error: Refused) -> int:
    text = str(error)
    if error.field:
        name_of, _, part = str(error.field).partition("[")
        flag = _FLAGS.get(name_of) or "--" + name_of.replace("_", "-")
        if any(flag in option.names for option in verb.options):
            said = part.removesuffix("]").strip("'\"")
            text = f"{flag}{said and f' {said!r}'}: {text.removeprefix(f'{error.field}: ')}"
    if error.status in (400, 404, 413, 422):
        return _complain(name, text)
    if error.status == 503:
        return _complain(name, text, code=EX_UNAVAILABLE)
    return _complain(name, text, code=EX_SOFTWARE if error.status >= 500 else 1)


def _help_of(name: str) -> int:
    from . import manual

    name = ALIASES.get(name, name)
    if name not in VERBS:
        return _complain("", f"{name!r} is not a verb{nearest(name, list(VERBS))} (`tenure --help` lists the verbs)")
    return manual.of_verb(name, module_of(name).VERB)


def _complain(name: str, text: str, *, code: int = 2) -> int:
    sys.stdout.flush()
    where = f"tenure {name}" if name else "tenure"
    print(f"{where}: {text}", file=sys.stderr)
    return code


def unwritten(error: OSError) -> int:
    """What was asked for may have been done: only the answer is lost, and the code says so."""
    from .render import note

    _silence()
    note(f"what was to be said could not be written: {os.strerror(error.errno or 0)}")
    return EX_IOERR


def _stand_in_for_what_is_closed() -> None:
    """A descriptor that the caller has closed (`>&-`) leads nowhere, before a socket of ours gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))


def _silence() -> None:
    """The reader of our output has gone: nothing more can be said, and the interpreter should not try at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())
