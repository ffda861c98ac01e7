"""Which model a request is for, and whether it is inference.  An alias is rewritten to the model's own name."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote

from .allowance import Rights, grantable
from .answers import Refused, models_body
from .expected import WORDS, expected_of
from .keep_alive import keep_alive_s
from .request import Request

__all__ = ["Names"]

SHOWN = 100  # characters of a name that nobody knows
LARGE_JSON = 1024 * 1024  # a body beyond this is read by a thread, so that others go on
_FORM_MODEL = re.compile(rb'\bname="?model"?(?:;[^\r\n]*)?\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]{1,200})\r\n', re.IGNORECASE)


class Names:
    """The platform's table of models, by every name that a client may write."""

    def __init__(self) -> None:
        self.rows: dict[str, Mapping[str, Any]] = {}
        self._models: dict[str, str] = {}
        self._adapters: frozenset[str] = frozenset()
        self._started = int(time.time())

    def heard(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self.rows = {row["name"]: row for row in rows}
        self._models = {
            name: row["name"] for row in self.rows.values() for name in (*row["adapters"], *row["aliases"], row["name"])
        }
        self._adapters = frozenset(name for row in self.rows.values() for name in row["adapters"])

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def id_of(self, name: str) -> str:
        """As `/v1/models` calls it: an adapter's name stays, any other becomes its model's; unknown ones stay, too."""
        return name if name in self._adapters else self._models.get(name, name)

    def listed(self, rights: Rights | None) -> list[dict[str, Any]]:
        """Every model, asleep or not, and every adapter, that somebody may ask."""
        every = models_body(self.rows.values(), self._started)
        seen = set(grantable(rights, [one["id"] for one in every], self.id_of))
        return [one for one in every if one["id"] in seen]

    def one(self, wanted: str, rights: Rights | None) -> dict[str, Any]:
        """By any of its names, as it stands in a path.  Raises 404."""
        wanted = unquote(wanted)
        name = self.id_of(wanted)
        for one in self.listed(rights):
            if one["id"] == name:
                return one
        raise self._unknown(wanted, rights)

    def _unknown(self, name: str, rights: Rights | None) -> Refused:
        known = ", ".join(sorted(grantable(rights, self._models, self.id_of))) or "none"
        shown = repr(name) if len(name) <= SHOWN else f"{name[:SHOWN]!r}…"
        return Refused(404, "model_not_found", f"there is no model {shown}; there are: {known}", param="model")

    async def identify(self, request: Request, headers: Mapping[bytes, bytes]) -> None:
        """From the body, a form's field, the header, or because there is only one.  Raises 400 and 404."""
        kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        name: Any = headers.get(b"x-tenure-model", b"").decode("latin-1") or None
        fields: dict[str, Any] | None = None
        form = False
        if kind == "multipart/form-data":
            named = set(_FORM_MODEL.findall(request.body))
            if len(named) > 1:  # which of them the server would take is its own affair
                raise Refused(400, "several_models", "the form has more than one field `model`", param="model")
            form = bool(named)
            name = named.pop().decode("utf-8", "replace") if named else name
        elif request.body and request.body.lstrip()[:1] == b"{":
            fields = await _parsed(request.body)
            name = fields.get("model") or name
            request.stream = fields.get("stream") is True
        if name is None and len(self.rows) == 1:
            name = next(iter(self.rows))
        if not isinstance(name, str):
            raise Refused(400, "missing_model", "the request names no model; write `model` in its body", param="model")
        model = self._models.get(name)
        if model is None:
            raise self._unknown(name, request.rights)
        request.model, request.asked_as = model, name
        request.adapter = name if name in self._adapters else None
        request.inference = request.method == "POST" and request.path in self.rows[model]["inference_paths"]
        if request.inference and fields is not None:
            request.keep_alive_s = keep_alive_s(fields.get("keep_alive"))
        if request.rights is not None and fields is not None and (request.inference or request.path in WORDS):
            guess = partial(expected_of, request.path, request.body, fields)
            request.expected = await asyncio.to_thread(guess) if len(request.body) > LARGE_JSON else guess()
        if name == model or request.adapter is not None:
            return
        if form:
            request.body = _FORM_MODEL.sub(
                lambda found: found[0][: found.start(1) - found.start()] + model.encode() + b"\r\n", request.body
            )
        elif fields is not None:
            again = partial(_written, fields | {"model": model})
            request.body = await asyncio.to_thread(again) if len(request.body) > LARGE_JSON else again()


def _written(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


async def _parsed(body: bytes) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = (
            await asyncio.to_thread(json.loads, body) if len(body) > LARGE_JSON else json.loads(body)
        )
    except ValueError as error:
        raise Refused(400, "invalid_json", f"the body is no JSON: {error}") from None
    except RecursionError:
        raise Refused(400, "invalid_json", "the body's JSON is nested too deeply") from None
    return fields
