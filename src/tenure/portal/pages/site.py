"""What all pages share: the template environment, the headers that keep a page to itself, and the files they load.

htmx and uPlot come out of installed wheels (`django-htmx`, `youplot`), found at run time; nothing of others is kept here.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Receive, Scope, Send

import tenure
from tenure.control.clock import span as spelled
from tenure.domain.amounts import format_quantity
from tenure.domain.errors import HouseFault, NotFound
from tenure.domain.events import EventKind
from tenure.portal.problems import respond

__all__ = ["Assets", "page", "trouble"]

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # of a page that tells nobody at all, browsers' forms say `Origin: null`, which is nobody's
    "Cache-Control": "no-store",
}
_OWN = Path(__file__).parent.parent / "static"
_WHEELS: Mapping[str, tuple[str, str, str]] = {
    "htmx.js": ("django_htmx", "static/django_htmx/htmx-4.min.js", "text/javascript"),
    "uplot.js": ("youplot", "vendor/uplot.iife.min.js", "text/javascript"),
    "uplot.css": ("youplot", "vendor/uplot.min.css", "text/css"),
}
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def page(request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
    """The whole page, or its live part where htmx asks."""
    live = request.headers.get("hx-request") == "true"
    values |= {
        "path": request.url.path,
        "here": str(request.url.path) + (f"?{request.url.query}" if request.url.query else ""),
    }
    values |= {"cursor": request.app.state.platform.news.cursor}
    text = _environment().get_template(template).render(layout="live.html" if live else "layout.html", **values)
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=status, headers=_HEADERS | {"Vary": "HX-Request"})


def trouble(request: Request, problem: Mapping[str, Any]) -> Response:
    """An error as a page."""
    return page(request, "trouble.html", status=problem["status"], problem=problem)


@cache
def _environment() -> Environment:
    env = Environment(
        loader=PackageLoader("tenure.portal"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.globals |= {"version": tenure.__version__, "kinds": " ".join(EventKind), "asset": asset}
    env.filters |= {
        "clock": clock,
        "day": day,
        "span": span,
        "lasts": lasts,
        "amount": amount,
        "shorten": shorten,
        "number": number,
        "pct": pct,
    }
    return env


def _parse(at: str | None) -> datetime | None:
    return datetime.fromisoformat(at) if at else None


def clock(at: str | None) -> str:
    """`21:30:05`, with the day before it unless it is today; all times are UTC."""
    when = _parse(at)
    if when is None:
        return "–"
    today = datetime.now(UTC).date() == when.date()
    return when.strftime("%H:%M:%S" if today else "%d %b %H:%M")


def day(at: str | None) -> str:
    when = _parse(at)
    return "–" if when is None else when.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def span(start: str | None, end: str | None = None) -> str:
    """How long, in two units at most: `0.4 s`, `12 s`, `3 min 04 s`, `2 h 05 min`, `3 d 4 h`.  Never negative."""
    begin = _parse(start)
    if begin is None:
        return "–"
    seconds = max(0.0, ((_parse(end) or datetime.now(UTC)) - begin).total_seconds())
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def lasts(seconds: float) -> str:
    """A length of time as it was asked for: `30s`, `45m`, `2h`, `2h30m`."""
    return spelled(int(seconds * 1e6))


def amount(value: Any, resource: str = "tenure.dev/gpu-memory") -> str:
    """`8 GiB`; bytes are rounded to a tenth for people, every other resource is exact."""
    if value is None:
        return "–"
    if not isinstance(value, int | float):
        return str(value)
    if "memory" not in resource:
        return format_quantity(int(value), resource=resource)
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return f"{value / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{int(value)} B" if value else "0"


def number(value: Any) -> str:
    """Six significant digits; whole numbers whole."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def pct(fraction: float) -> str:
    return f"{fraction * 100:.3f}%"


def shorten(text: Any, limit: int = 60) -> str:
    plain = " ".join(str(text).split())
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


@cache
def _asset(name: str) -> tuple[bytes, str, str]:
    """A file's bytes, type and tag.  Raises NotFound for one that no page uses."""
    if name in _WHEELS:
        package, inside, kind = _WHEELS[name]
        found = importlib.util.find_spec(package)
        if found is None or not found.submodule_search_locations:
            raise HouseFault(f"{name} is not installed; `make install` brings {package}")
        path = Path(found.submodule_search_locations[0]) / inside
    else:
        path = _OWN / name
        kind = _KINDS.get(path.suffix, "")
        if "/" in name or not kind or not path.is_file():
            raise NotFound(f"there is no {name}")
    data = path.read_bytes()
    return data, kind, hashlib.sha256(data).hexdigest()[:12]


def asset(name: str) -> str:
    """The address of a file, which changes with its content, so that browsers may keep it for good."""
    return f"/static/{name}?{_asset(name)[2]}"


class Assets:
    """Serves `/static`: our own files and what wheels carry."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            data, kind, tag = _asset(scope["path"].rpartition("/static/")[2])
        except (NotFound, HouseFault) as error:
            await respond(error)(scope, receive, send)
            return
        asked = scope["query_string"].decode("latin-1")
        headers = {
            "Cache-Control": "public, max-age=31536000, immutable" if asked == tag else "no-cache",
            "X-Content-Type-Options": "nosniff",
        }
        await Response(data, media_type=kind, headers=headers)(scope, receive, send)
