"""The help pages, drawn from the same tables that parsing uses."""

from __future__ import annotations

import textwrap

from .grammar import Option, Verb
from .verbs import VERBS

__all__ = ["of_verb", "overview"]


def overview() -> int:
    print("tenure: one front door for every GPU job\n\nUsage: tenure VERB [flags] [arguments]")
    groups = dict.fromkeys(entry.group for entry in VERBS.values())
    for group in groups:
        print(f"\n{group}")
        for name, entry in VERBS.items():
            if entry.group == group:
                print(f"  {name:<11} {entry.summary}")
    print(
        "\n`tenure VERB --help` tells more.  -o json|yaml|wide|name works everywhere; @ is the newest job, @~1 the one before.\n"
        "Exit codes: the job's own, 1 the work failed, 2 usage, 69 platform not reachable, 124 timed out, 128+N signal N.\n"
        "TENURE_HOME decides where the platform lives (default ~/.tenure)."
    )
    return 0


def of_verb(name: str, verb: Verb) -> int:
    print(f"Usage: tenure {verb.usage}\n\n{VERBS[name].summary[0].upper()}{VERBS[name].summary[1:]}.")
    if verb.details:
        print(f"\n{textwrap.dedent(verb.details).strip()}")
    print("\nFlags")
    for option in verb.all_options:
        if not option.hidden:
            print(_line(option))
    if verb.examples:
        print("\nExamples")
        for command, meaning in verb.examples:
            print(f"  {command}\n      {meaning}")
    return 0


def _line(option: Option) -> str:
    names = ", ".join(sorted(option.names, key=len)) + (f" {option.value}" if option.value else "")
    if len(names) > 26:
        return f"  {names}\n{'':<30}{option.help}"
    return f"  {names:<28}{option.help}"
