"""`tenure completion`: a script for bash, zsh or fish, drawn from the tables that parsing uses."""

from __future__ import annotations

import os

from .call import Call
from .grammar import FORMATS, Usage, Verb, nearest
from .verbs import ALIASES, VERBS

VERB = Verb(
    usage="completion bash|zsh|fish",
    positionals=(0, 1),
    what="shell",
    details="Verbs and their words, flags, the choices of a flag, files, and the names of jobs, models and cards are completed.",
    examples=(
        ('eval "$(tenure completion bash)"', "in ~/.bashrc"),
        ("tenure completion fish > ~/.config/fish/completions/tenure.fish", "once"),
    ),
)

SHELLS = WORDS = ("bash", "zsh", "fish")
ASKED = {"models": "tenure models -o name", "drain": "tenure cards -o name", "undrain": "tenure cards -o name"}
"""What the platform is asked for, beside the words that a verb has of its own."""
FOLDERS = ("policy",)
TAKES_JOBS = ("cancel", "retry", "hold", "release", "wait", "show", "why", "logs", "events")


def run(call: Call) -> int:
    shell = (call.parsed.positionals or [os.path.basename(os.environ.get("SHELL", ""))])[0]
    if shell not in SHELLS:
        raise Usage(f"{shell!r}: there is {', '.join(SHELLS)}{nearest(shell, SHELLS)}")
    print({"bash": bash, "zsh": zsh, "fish": fish}[shell](), end="")
    return 0


def _flags() -> dict[str, list[str]]:
    from .main import module_of

    return {
        name: [
            n
            for option in module_of(name).VERB.all_options
            if not option.hidden
            for n in option.names
            if n.startswith("--")
        ]
        for name in VERBS
    }


def _words() -> dict[str, tuple[str, ...]]:
    """The words that come first after a verb, where it has any of its own."""
    from .main import module_of

    found = {name: tuple(getattr(module_of(name), "WORDS", ())) for name in VERBS}
    return {name: words for name, words in found.items() if words or name in ASKED}


def _any_of(*names: str) -> str:
    """A shell's pattern: the verbs by every name that they have."""
    return "|".join([*names, *(alias for alias, name in ALIASES.items() if name in names)])


def bash() -> str:
    flags = "\n".join(f'        {_any_of(name)}) flags="{" ".join(found)}" ;;' for name, found in _flags().items())
    words = "\n".join(
        f'        {_any_of(name)}) COMPREPLY=( $(compgen -W "{" ".join(found)}{_asked(name)}" -- "$word"){_folders(name)} ) ;;'
        for name, found in _words().items()
    )
    return f"""# bash completion for tenure
_tenure() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" verb="${{COMP_WORDS[1]}}" flags=""
    COMPREPLY=()
    if [[ $COMP_CWORD -eq 1 ]]; then
        COMPREPLY=( $(compgen -W "{" ".join(VERBS)}" -- "$word") )
        return
    fi
    local i
    for (( i = 2; i < COMP_CWORD; i++ )); do
        if [[ "${{COMP_WORDS[i]}}" == "--" ]]; then
            COMPREPLY=( $(compgen -c -f -- "$word") )
            return
        fi
    done
    if [[ "$previous" == "-o" || "$previous" == "--format" ]]; then
        COMPREPLY=( $(compgen -W "{" ".join(FORMATS)}" -- "$word") )
        return
    fi
    case "$verb" in
{flags}
    esac
    if [[ "$word" == -* ]]; then
        COMPREPLY=( $(compgen -W "$flags" -- "$word") )
        return
    fi
    case "$verb" in
        {_any_of(*TAKES_JOBS)}) COMPREPLY=( $(compgen -W "@ last $(tenure ps -a -n 200 -o name 2>/dev/null)" -- "$word") ) ;;
{words}
        *) COMPREPLY=( $(compgen -f -- "$word") ) ;;
    esac
}}
complete -o filenames -o bashdefault -F _tenure tenure
"""


def _asked(name: str) -> str:
    return f" $({ASKED[name]} 2>/dev/null)" if name in ASKED else ""


def _folders(name: str) -> str:
    return ' $(compgen -d -- "$word")' if name in FOLDERS else ""


def zsh() -> str:
    verbs = "\n".join(
        f"        '{name}:{entry.summary.replace(chr(39), '’').replace(':', ' ')}'" for name, entry in VERBS.items()
    )
    flags = "\n".join(f"        {_any_of(name)}) flags=({' '.join(found)}) ;;" for name, found in _flags().items())
    words = "\n".join(
        f"        {_any_of(name)}) ids=({' '.join(found)}{_lines(ASKED.get(name))}); compadd -- $ids{'; _files -/' if name in FOLDERS else ''} ;;"
        for name, found in _words().items()
    )
    return f"""#compdef tenure
_tenure() {{
    local -a verbs flags ids
    verbs=(
{verbs}
    )
    if (( CURRENT == 2 )); then
        _describe 'verb' verbs
        return
    fi
    if [[ "$words[CURRENT-1]" == (-o|--format) ]]; then
        compadd {" ".join(FORMATS)}
        return
    fi
    case "$words[2]" in
{flags}
    esac
    if [[ "$PREFIX" == -* ]]; then
        compadd -- $flags
        return
    fi
    case "$words[2]" in
        {_any_of(*TAKES_JOBS)}) ids=(@ last{_lines("tenure ps -a -n 200 -o name")}); compadd -- $ids ;;
{words}
        *) _files ;;
    esac
}}
compdef _tenure tenure
"""


def _lines(command: str | None) -> str:
    """Of a command's output, for zsh: an item each."""
    return f' ${{(f)"$({command} 2>/dev/null)"}}' if command else ""


def fish() -> str:
    from .main import module_of

    lines = ["# fish completion for tenure"]
    for name, entry in VERBS.items():
        summary = entry.summary.replace("'", "\\'")
        lines.append(f"complete -c tenure -n __fish_use_subcommand -f -a {name} -d '{summary}'")
        for option in module_of(name).VERB.all_options:
            if option.hidden:
                continue
            words = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names)
            value = "" if option.value is None else f" -x -a '{' '.join(option.choices)}'" if option.choices else " -r"
            said = option.help.replace("'", "\\'")
            lines.append(f"complete -c tenure -n '__fish_seen_subcommand_from {name}' {words}{value} -d '{said}'")
    for name, known in _words().items():
        said = " ".join([*known, *([f"({ASKED[name]} 2>/dev/null)"] if name in ASKED else [])])
        lines.append(
            f"complete -c tenure -n '__fish_seen_subcommand_from {_any_of(name).replace('|', ' ')}' -f -a '{said}'"
        )
    ids = "(tenure ps -a -n 200 -o name 2>/dev/null) @ last"
    lines.append(
        f"complete -c tenure -n '__fish_seen_subcommand_from {_any_of(*TAKES_JOBS).replace('|', ' ')}' -f -a '{ids}'"
    )
    return "\n".join(lines) + "\n"
