"""`tenure models`: which are up, waiting or asleep; wake one, put one to sleep."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from .call import Call
from .grammar import Usage, Verb, nearest
from .render import emit, note, plain, table

VERB = Verb(
    usage="models [wake NAME | sleep NAME]",
    positionals=(0, 2),
    details="""
    Models are declared beside the policy (`tenure policy schema model`) and wake when somebody asks at the gateway.
    A model that runs is a job: `tenure why JOB` says why it waits, `tenure logs JOB` what its server printed.
    """,
    examples=(("tenure models wake assistant", "load it before anybody waits for it"),),
)

WORDS = ("wake", "sleep")


def run(call: Call) -> int:
    word, *rest = call.parsed.positionals or [""]
    if word and word not in WORDS:
        raise Usage(f"{word!r}: there is wake NAME and sleep NAME{nearest(word, WORDS)}")
    if word and not rest:
        raise Usage(f"`models {word}` needs a name")
    if word:
        models = [call.client.post(f"/models/{quote(rest[0], safe='')}:{word}")]
    else:
        models = call.client.get("/models")
    if call.structured:
        emit(models[0] if word else models, call.form)
    elif call.form == "name":
        print("\n".join(str(model["name"]) for model in models)) if models else None
    elif word:
        print(f"{models[0]['name']}: {_standing(models[0])}")
    elif models:
        print("\n".join(table(["NAME", "STATE", "JOB", "IN FLIGHT", "HELD", "WAKES", "LAST ASKED", "SLEEPS", "REASON"], [_row(model) for model in models])))  # fmt: skip
    else:
        note("no model is declared; `tenure policy schema model` says how one is, in TENURE_HOME/policy")
    return 0


def _standing(model: dict[str, Any]) -> str:
    why = ": ".join(plain(part) for part in (model["reason"], model["message"]) if part)
    job = f" (job {model['job_id']})" if model["job_id"] else ""
    return f"{model['state']}{job}" + (f": {why}" if why else "")


def _row(model: dict[str, Any]) -> list[object]:
    return [
        model["name"], model["state"], model["job_id"], model["in_flight"], model["held"], model["wakes"],
        _clock(model["last_inference_at"]), "never" if model["resident"] else _clock(model["sleeps_at"]),
        ": ".join(plain(part) for part in (model["reason"], model["message"]) if part)[:80],
    ]  # fmt: skip


def _clock(at: str | None) -> str:
    return f"{at[11:19]}Z" if at else "-"
