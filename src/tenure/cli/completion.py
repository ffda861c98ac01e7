"""`tenure completion`: a script for bash, zsh or fish, drawn from the tables that parsing uses."""

from __future__ import annotations

import os

from .call import Call
from .grammar import Usage, Verb, nearest
from .verbs import VERBS

VERB = Verb(
    usage="completion bash|zsh|fish",
    positionals=(0, 1),
    what="shell",
    details="Verbs, flags, the choices of a flag, files, and the ids of jobs are completed.",
    examples=(
        ('eval "$(tenure completion bash)"', "in ~/.bashrc"),
        ("tenure completion fish > ~/.config/fish/completions/tenure.fish", "once"),
    ),
)

SHELLS = ("bash", "zsh", "fish")
TAKES_JOBS = ("cancel", "retry", "hold", "release", "wait", "show", "why", "logs")


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


def bash() -> str:
    cases = "\n".join(f'        {name}) flags="{" ".join(flags)}" ;;' for name, flags in _flags().items())
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
        COMPREPLY=( $(compgen -W "json yaml wide name table" -- "$word") )
        return
    fi
    case "$verb" in
{cases}
    esac
    if [[ "$word" == -* ]]; then
        COMPREPLY=( $(compgen -W "$flags" -- "$word") )
        return
    fi
    case "$verb" in
        {"|".join(TAKES_JOBS)}) COMPREPLY=( $(compgen -W "@ last $(tenure ps -a -n 200 -o name 2>/dev/null)" -- "$word") ) ;;
        runs) COMPREPLY=( $(compgen -W "ls show diff" -- "$word") ) ;;
        policy) COMPREPLY=( $(compgen -W "check show reload" -- "$word") $(compgen -d -- "$word") ) ;;
        models|model) COMPREPLY=( $(compgen -W "wake sleep advise $(tenure models -o name 2>/dev/null)" -- "$word") ) ;;
        token) COMPREPLY=( $(compgen -W "show login ls create set revoke" -- "$word") ) ;;
        completion) COMPREPLY=( $(compgen -W "{" ".join(SHELLS)}" -- "$word") ) ;;
        *) COMPREPLY=( $(compgen -f -- "$word") ) ;;
    esac
}}
complete -o filenames -o bashdefault -F _tenure tenure
"""


def zsh() -> str:
    verbs = "\n".join(
        f"        '{name}:{entry.summary.replace(chr(39), '’').replace(':', ' ')}'" for name, entry in VERBS.items()
    )
    cases = "\n".join(f"            {name}) flags=({' '.join(flags)}) ;;" for name, flags in _flags().items())
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
        compadd json yaml wide name table
        return
    fi
    case "$words[2]" in
{cases}
    esac
    if [[ "$PREFIX" == -* ]]; then
        compadd -- $flags
        return
    fi
    case "$words[2]" in
        {"|".join(TAKES_JOBS)}) ids=(@ last ${{(f)"$(tenure ps -a -n 200 -o name 2>/dev/null)"}}); compadd -- $ids ;;
        runs) compadd ls show diff ;;
        policy) compadd check show reload; _files ;;
        models|model) ids=(wake sleep advise ${{(f)"$(tenure models -o name 2>/dev/null)"}}); compadd -- $ids ;;
        token) compadd show login ls create set revoke ;;
        completion) compadd {" ".join(SHELLS)} ;;
        *) _files ;;
    esac
}}
compdef _tenure tenure
"""


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
    ids = "(tenure ps -a -n 200 -o name 2>/dev/null) @ last"
    lines.append(f"complete -c tenure -n '__fish_seen_subcommand_from {' '.join(TAKES_JOBS)}' -f -a '{ids}'")
    return "\n".join(lines) + "\n"
