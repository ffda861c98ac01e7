"""`tenure policy`: would these files be taken, what would they have done, what is in force, read it again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from .call import Call
from .grammar import Option, Usage, Verb, nearest
from .render import emit, plain

VERB = Verb(
    usage="policy check DIR | try DIR | show | reload | schema model",
    options=(
        Option(names=("--trace",), value="FILE", help="of try: replay this workload trace, not the ledger"),
        Option(names=("--since",), value="DURATION", help="of try: how far back, such as 7d (default) or 12h"),
        Option(
            names=("--resume",),
            value="HOW",
            choices=("remaining", "from-scratch"),
            help="of try: with what a preempted job comes back (default remaining)",
        ),
    ),
    positionals=(1, 2),
    what="argument",
    details="""
    `check` needs no running platform and exits with 1 if the files would be refused, naming file, document, field and
    the nearest right name.  `try` replays the last days of the ledger, or a trace, under the policy in force and under
    DIR, and prints what each queue would have seen; it needs no running platform either.  `show` prints what is in force.  `reload` reads TENURE_HOME/policy again; what is refused
    changes nothing.  `schema model` prints the JSON Schema of a Model document, for editors.
    """,
    examples=(
        ("tenure policy check ~/policy", "before it is put in force"),
        ("tenure policy try ~/policy --since 7d", "what it would have done with the last week"),
    ),
)

WORDS = ("check", "try", "show", "reload", "schema")


def run(call: Call) -> int:
    word, *rest = call.parsed.positionals
    if word not in WORDS:
        raise Usage(f"{word!r}: there is check DIR, try DIR, show, reload and schema model{nearest(word, WORDS)}")
    if word == "check":
        return _check(call, Path(rest[0]) if rest else call.settings.policy_dir)
    if word == "try":
        from . import policy_try

        if not rest:
            raise Usage("`policy try` needs a directory of policy files: tenure policy try DIR")
        return policy_try.run(call, files_of(Path(rest[0])))
    if word == "schema":
        return _schema(rest)
    if rest:
        raise Usage(f"{rest[0]!r}: `policy {word}` takes nothing more")
    if word == "show":
        return _show(call)
    answer = call.client.post("/policy:reload")
    if call.structured:
        emit(answer, call.form)
    else:
        print("the policy was read again")
    for problem in answer["problems"]:
        print(f"tenure policy: {_told(problem)}", file=sys.stderr)
    return 0


def _check(call: Call, folder: Path) -> int:
    """1 if there is a problem that would be refused; warnings are named and pass."""
    from tenure.control import views

    answer = views.check_policy(files_of(folder))
    if call.structured:
        emit(answer, call.form)
    else:
        for problem in answer["problems"]:
            print(_told(problem), file=sys.stderr)
        print(f"{folder}: {'would be taken' if answer['ok'] else 'would be refused'}")
    return 0 if answer["ok"] else 1


def _schema(rest: list[str]) -> int:
    if rest != ["model"]:
        raise Usage("`policy schema` prints the schema of a model: tenure policy schema model")
    from tenure.manifests.models import model_schema

    print(model_schema().rstrip("\n"))
    return 0


def files_of(folder: Path) -> list[list[str]]:
    """Every YAML and JSON file of a directory, as the platform reads them, or the one file that was named."""
    if not folder.exists():
        raise Usage(f"there is no {str(folder)!r} here; name a directory of policy files")
    paths = (
        sorted(p for p in folder.iterdir() if p.suffix in (".yaml", ".yml", ".json")) if folder.is_dir() else [folder]
    )
    if not paths:
        raise Usage(f"{folder} has no .yaml or .json file in it")
    try:
        return [[path.name, path.read_text("utf-8")] for path in paths]
    except UnicodeDecodeError as error:
        raise Usage(f"a file of {folder} is not text in UTF-8: {error}") from None
    except OSError as error:
        raise Usage(f"{error.filename}: {(error.strerror or str(error)).lower()}") from None


def _show(call: Call) -> int:
    answer = call.client.get("/policy")
    if call.structured:
        emit(answer, call.form)
    elif call.form == "name":
        print("\n".join(str(name if isinstance(name, str) else name.get("name")) for name in answer.get("files") or []))
    else:
        print(answer["yaml"].rstrip("\n"))
    for problem in answer.get("problems") or []:
        print(f"tenure policy: {_told(problem)}", file=sys.stderr)
    return 0


def _told(problem: Any) -> str:
    """`file:line (document N): field: message`, as every other list of problems here."""
    if not isinstance(problem, dict):
        return plain(problem)
    where = str(problem.get("file") or "") + (f":{problem['line']}" if problem.get("line") else "")
    document = f" (document {problem['document']})" if problem.get("document") else ""
    field = f" {problem['field']}:" if problem.get("field") else ""
    mark = "warning: " if problem.get("severity") == "warning" else ""
    return plain(f"{where}{document}:{field} {mark}{problem.get('message')}")
