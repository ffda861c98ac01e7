"""What a command line may say: options, positionals, and `--` after which nothing is touched.

A verb declares a `Verb`; `parse` turns words into a `Parsed`, and refuses with what, where and what would work.  Help and
completion are drawn from the same declaration.  Standard library only, and little of it: start-up time is a promise
(see docs/decisions/0007-command-line-start-up.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["COMMON", "FORMATS", "Option", "Parsed", "Usage", "Verb", "nearest", "parse"]


class Usage(Exception):
    """The command line is wrong: exit 2.  The text says what, where and what would work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One flag.  `value` is how its value is written in the help; None = a switch.  `names[0]` gives it its key."""

    names: tuple[str, ...]
    help: str
    value: str | None = None
    many: bool = False
    choices: tuple[str, ...] = ()
    hidden: bool = False

    @property
    def key(self) -> str:
        return self.names[0].lstrip("-")


FORMATS = ("table", "json", "yaml", "wide", "name")
FORMAT = Option(names=("--format", "-o"), value="json|yaml|wide|name", choices=FORMATS, help="how to print the answer")
HELP = Option(names=("--help", "-h"), help="show this help and exit")
COMMON = (FORMAT, HELP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """What one verb takes.  `positionals` is its (least, most) count, most None = any number.

    `command`: words after `--` belong to it, untouched.  `stops`: from the first positional on, everything is untouched
    too, as docker and sbatch do; a callable decides by the word itself.
    """

    usage: str
    options: tuple[Option, ...] = ()
    positionals: tuple[int, int | None] = (0, 0)
    what: str = "argument"  # how a positional is called in a complaint: "job id"
    command: bool = False
    stops: bool = False
    stops_unless: tuple[str, ...] = ()  # suffixes of a first positional after which flags are still read
    details: str = ""
    examples: tuple[tuple[str, str], ...] = ()

    @property
    def all_options(self) -> tuple[Option, ...]:
        own = {name for option in self.options for name in option.names}  # a verb may have more formats than others
        return (*self.options, *(option for option in COMMON if option.names[0] not in own))


@dataclass(slots=True)
class Parsed:
    """The words of one call, by the keys of its options."""

    values: dict[str, list[str]] = field(default_factory=dict)
    switches: set[str] = field(default_factory=set)
    positionals: list[str] = field(default_factory=list)
    command: list[str] | None = None  # what stood after `--`; None = there was none

    def text(self, key: str) -> str | None:
        """The value of a flag, the last one given where it was repeated."""
        found = self.values.get(key)
        return found[-1] if found else None

    def many(self, key: str) -> list[str]:
        return self.values.get(key, [])

    def on(self, key: str) -> bool:
        return key in self.switches

    def count(self, key: str) -> int | None:
        """A whole number >= 0.  Raises Usage otherwise."""
        text = self.text(key)
        if text is None:
            return None
        if not text.isdecimal():
            raise Usage(f"--{key} takes a whole number, not {text!r}")
        return int(text)


# What other programs call it.  A misunderstanding that costs money deserves a sentence, not a guess.
FOREIGN: Mapping[str, str] = {
    "--gpus": "--shares N (shares of one card) or --whole (a whole card)",
    "--gres": "--shares N (shares of one card) or --whole (a whole card)",
    "--shared": "--shares 1",
    "--mem": "--memory AMOUNT (main memory) or --gpu-memory AMOUNT (the card's)",
    "--partition": "--queue NAME",
    "--qos": "--priority CLASS",
    "--chdir": "--workdir DIR",
    "--job-name": "--name NAME",
    "--dependency": "--after [KIND:]ID",
    "--cpus-per-task": "--cpus N",
    "--time-limit": "--time DURATION",
    "--wrap": "`--` before the command",
    "--json": "-o json",
    "--follow": "-f",
}


def nearest(word: str, words: Sequence[str]) -> str:
    """`; did you mean --name?`, or an empty text."""
    import difflib

    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def parse(verb: Verb, words: Sequence[str]) -> Parsed:
    """Raises Usage."""
    known = {name: option for option in verb.all_options for name in option.names}
    parsed = Parsed()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            if verb.command:
                parsed.command = rest
            else:
                parsed.positionals.extend(rest)
            break
        if word.startswith("--"):
            name, sep, inline = word.partition("=")
            _take(parsed, _known(known, name), name, inline if sep else None, rest, known)
        elif word.startswith("-") and len(word) > 1:
            _short(parsed, word, rest, known)
        else:
            parsed.positionals.append(word)
            if verb.stops and not (verb.stops_unless and word.lower().endswith(verb.stops_unless)):
                parsed.positionals.extend(rest)
                break
    if not parsed.on("help"):
        _count(verb, parsed)
    return parsed


def _short(parsed: Parsed, word: str, rest: list[str], known: Mapping[str, Option]) -> None:
    """`-f`, `-af`, `-o json`, `-ojson`."""
    for at, letter in enumerate(word[1:], start=1):
        option = _known(known, f"-{letter}", within=word)
        if option.value is None:
            parsed.switches.add(option.key)
            continue
        inline = word[at + 1 :].removeprefix("=")
        _take(parsed, option, f"-{letter}", inline or None, rest, known)
        return


def _known(known: Mapping[str, Option], name: str, within: str = "") -> Option:
    if name in known:
        return known[name]
    shown = within or name
    meant = [n for n, option in known.items() if not option.hidden and n.startswith("--")]
    if name in FOREIGN:
        raise Usage(f"{shown} is not a flag here; use {FOREIGN[name]}")
    raise Usage(f"{shown} is not a flag here{nearest(name, meant)} (a command and its own flags go after `--`)")


def _take(
    parsed: Parsed, option: Option, name: str, inline: str | None, rest: list[str], known: Mapping[str, Option]
) -> None:
    if option.value is None:
        if inline is not None:
            raise Usage(f"{name} is a switch and takes no value; drop ={inline}")
        parsed.switches.add(option.key)
        return
    if inline is None:
        if not rest or rest[0] == "--" or rest[0].partition("=")[0] in known:
            raise Usage(f"{name} needs a value: {name} {option.value}")
        inline = rest.pop(0)
    if option.choices and inline not in option.choices:
        options = ", ".join(option.choices)
        raise Usage(f"{name} {inline!r}: there is {options}{nearest(inline, option.choices)}")
    if not option.many and option.key in parsed.values:
        parsed.values[option.key].clear()
    parsed.values.setdefault(option.key, []).append(inline)


def _count(verb: Verb, parsed: Parsed) -> None:
    least, most = verb.positionals
    found = len(parsed.positionals)
    if found < least:
        one = "an" if verb.what.startswith(tuple("aeiou")) else "a"
        raise Usage(f"needs {one if least == 1 else least} {verb.what}: tenure {verb.usage}")
    if most is not None and found > most:
        raise Usage(f"{parsed.positionals[most]!r} is one {verb.what} too many: tenure {verb.usage}")
