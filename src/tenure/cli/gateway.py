"""`tenure gateway url`: where models are asked, for a client's base URL."""

from __future__ import annotations

import json

from .call import Call
from .client import Unreachable
from .grammar import Usage, Verb
from .holder import holder
from .render import emit

VERB = Verb(
    usage="gateway url",
    positionals=(1, 1),
    details="The base URL of an OpenAI-compatible client; TENURE_GATEWAY_HOST and TENURE_GATEWAY_PORT decide it at `tenure up`.",
    examples=(("OPENAI_BASE_URL=$(tenure gateway url) python chat.py", "any client that reads it"),),
)

WORDS = ("url",)


def run(call: Call) -> int:
    word = call.parsed.positionals[0]
    if word not in WORDS:
        raise Usage(f"{word!r}: there is url")
    url = None
    if holder(call.settings) is not None:
        try:
            url = json.loads((call.settings.daemon_dir / "address.json").read_text("utf-8")).get("gateway")
        except (OSError, ValueError):
            url = None
    if not url:
        raise Unreachable(f"no platform is running in {call.settings.home}; start it with `tenure up -d`")
    if call.structured:
        emit({"url": url}, call.form)
    else:
        print(url)
    return 0
