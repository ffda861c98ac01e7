"""The only reader of the environment and of config files.

A value that cannot work is refused here, before anything is done with it: the error names the setting, says what was
given (of a secret only its length) and what would work.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tenure.domain.errors import InvalidRequest

__all__ = ["NAMES", "Settings", "address_of", "load", "port_of", "strangers"]

NAMES = (
    "TENURE_HOME", "TENURE_LEDGER_URL", "TENURE_HOST", "TENURE_PORT", "TENURE_GATEWAY_HOST", "TENURE_GATEWAY_PORT",
    "TENURE_GATEWAY_TOKENS", "TENURE_GATEWAY_SILENCE", "TENURE_TOKEN", "TENURE_URL", "TENURE_BOOT_ID",
)  # fmt: skip
_OF_JOBS = ("RUN_", "JOB_", "ATTEMPT", "CHECKPOINT_", "CARD", "ARRAY_", "SHIMS", "BASH_ENV")  # what a job is given

BASE_ENV = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
LONGEST_S = 366 * 86_400.0

_FILE = re.compile(r"sqlite(?:\+pysqlite)?://(?P<path>/.*)", re.S)
_SERVER = re.compile(
    r"postgresql(?:\+\w+)?://(?:[^:/@]*(?::[^@]*)?@)?(?:\[[^]/?@]+\]|[^]:/?@[\s]*)(?::(?P<port>\d{1,5}))?(?:/[^?]*)?(?:\?.*)?"
)
_PASSWORD = re.compile(r"(?P<user>(?:^(?![\w+.-]*://)|//)[^:/@\s]*:)\S*(?=@)|(?P<key>password=)[^&\s]*", re.I)
_YES, _NO = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})
_LEDGERS = "write sqlite:////PATH/TO/FILE, or postgresql://USER@HOST/DATABASE; without it the ledger is TENURE_HOME/ledger.sqlite3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where everything of one platform lives, and what its owner chose.  `home` alone decides the paths."""

    home: Path
    ledger_url: str  # SQLAlchemy URL; SQLite under `home` unless TENURE_LEDGER_URL says otherwise
    host: str = "127.0.0.1"
    port: int = 0  # 0 = any free port, kept in `daemon/address.json`
    gateway_host: str = "127.0.0.1"  # TENURE_GATEWAY_HOST; where models are asked
    gateway_port: int = 0  # TENURE_GATEWAY_PORT; 0 = any free port, kept like `port`
    gateway_tokens: bool = False  # TENURE_GATEWAY_TOKENS=1: also on loopback nobody without a token
    gateway_silence_s: float = 600.0  # TENURE_GATEWAY_SILENCE; a stream whose server says nothing for so long has ended
    token: str | None = None  # TENURE_TOKEN, for a client over TCP
    url: str | None = None  # TENURE_URL, for a client that is not on this machine
    boot_id: str | None = None  # TENURE_BOOT_ID: another boot than the kernel's, for trying what a power loss does
    base_env: Mapping[str, str] = field(default_factory=dict)  # for jobs that bring no environment of their own

    @property
    def ledger_file(self) -> Path | None:
        """Where an SQLite ledger lies; None for one that a server keeps."""
        found = _FILE.fullmatch(self.ledger_url)
        return None if found is None else Path(found["path"][1:])

    @property
    def ledger_shown(self) -> str:
        """The URL for people's eyes: without a password."""
        return _hidden(self.ledger_url)

    @property
    def policy_dir(self) -> Path:
        return self.home / "policy"

    @property
    def runs_dir(self) -> Path:
        return self.home / "runs"

    @property
    def daemon_dir(self) -> Path:
        """Lock, sockets, address and log of the daemon: nothing in it outlives its use."""
        return self.home / "daemon"

    @property
    def api_socket(self) -> Path:
        return self.daemon_dir / "api.sock"

    @property
    def tokens_dir(self) -> Path:
        return self.home / "tokens"

    @property
    def cards_file(self) -> Path:
        """The declared cards, so that a plain restart knows them."""
        return self.home / "cards.json"


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the environment; docs/cli.md lists what is read.  An empty value is none.  Raises InvalidRequest, whose
    `field` is the setting's name."""
    env = os.environ if environ is None else environ
    said = {name: value for name, value in env.items() if name.startswith("TENURE_") and value}
    home = _home(said.get("TENURE_HOME"))
    return Settings(
        home=home,
        ledger_url=_ledger("TENURE_LEDGER_URL", said.get("TENURE_LEDGER_URL"), home),
        host=address_of("TENURE_HOST", said.get("TENURE_HOST", "127.0.0.1")),
        port=port_of("TENURE_PORT", said.get("TENURE_PORT", "0")),
        gateway_host=address_of("TENURE_GATEWAY_HOST", said.get("TENURE_GATEWAY_HOST", "127.0.0.1")),
        gateway_port=port_of("TENURE_GATEWAY_PORT", said.get("TENURE_GATEWAY_PORT", "0")),
        gateway_tokens=_switch("TENURE_GATEWAY_TOKENS", said.get("TENURE_GATEWAY_TOKENS", "0")),
        gateway_silence_s=_seconds("TENURE_GATEWAY_SILENCE", said.get("TENURE_GATEWAY_SILENCE", "600")),
        token=_token("TENURE_TOKEN", said.get("TENURE_TOKEN")),
        url=_url("TENURE_URL", said.get("TENURE_URL")),
        boot_id=said.get("TENURE_BOOT_ID"),
        base_env={name: env[name] for name in BASE_ENV if name in env},
    )


def strangers(environ: Mapping[str, str] | None = None) -> list[str]:
    """Variables that look like settings and are none: misspelt ones, which change nothing."""
    ours = (
        name.removeprefix("TENURE_")
        for name in (os.environ if environ is None else environ)
        if name.startswith("TENURE_")
    )
    return sorted(f"TENURE_{name}" for name in ours if f"TENURE_{name}" not in NAMES and not name.startswith(_OF_JOBS))


def port_of(name: str, text: str) -> int:
    """0 is any that is free.  `name` is the setting's, or the flag's, for the error."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) <= 65535):
        raise _refused(name, text, "is no port; write a number up to 65535, or 0 for any that is free")
    return int(text)


def address_of(name: str, text: str) -> str:
    """A name or an IP address to listen on; an IPv6 one may stand in brackets.  Whether it is this machine's is seen later."""
    host = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    labels = host.removesuffix(".").split(".")
    if host.count(":") == 1 or not all(0 < len(one) < 64 and re.fullmatch(r"[\w:%-]+", one) for one in labels):
        raise _refused(
            name, text, "is no address to listen on; write a name or an IP address alone, such as 127.0.0.1 for this "
            "machine only, or 0.0.0.0 for every network that it has"
        )  # fmt: skip
    return host


def _home(text: str | None) -> Path:
    try:
        home = Path(text or "~/.tenure").expanduser().absolute()
    except RuntimeError:
        raise _refused(
            "TENURE_HOME", text, "names a home directory that is not known; write the whole path of a directory"
        ) from None
    try:
        str(home).encode()
    except UnicodeEncodeError:  # the ledger, records and REST carry paths as text: no job could be started there
        raise _refused("TENURE_HOME", str(home), "is not a path in UTF-8; write one that is") from None
    return home


def _ledger(name: str, text: str | None, home: Path) -> str:
    """A file's path is taken from `home`, where it is not whole: callers stand in many directories."""
    if text is None:
        return f"sqlite:///{home / 'ledger.sqlite3'}"
    shown, found = _hidden(text), _FILE.fullmatch(text)
    if found is None:
        server = _SERVER.fullmatch(text)
        if server is None or int(server["port"] or 1) > 65535:
            meant = f"did you mean sqlite:///{text}? otherwise " if text.startswith("/") else ""
            raise _refused(name, shown, f"is no place for a ledger; {meant}{_LEDGERS}")
        return text
    path = found["path"][1:]
    if path.strip("/") in ("", ":memory:") or path.endswith("/"):
        raise _refused(name, shown, f"names no file, and a ledger has to outlive the platform; {_LEDGERS}")
    if "?" in path:
        raise _refused(name, shown, f"has options, which a ledger in a file does not take; {_LEDGERS}")
    return f"sqlite:///{home / path}"


def _switch(name: str, text: str) -> bool:
    if text.lower() not in _YES | _NO:
        raise _refused(name, text, "is neither on nor off; write 1 or 0")
    return text.lower() in _YES


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= LONGEST_S:
        raise _refused(name, text, "is no time to wait; write seconds, such as 600, up to a year of them")
    return seconds


def _token(name: str, text: str | None) -> str | None:
    """What a header cannot carry, or no token has, came from a file with a line end or a half-copied line."""
    if text is not None and not re.fullmatch(r"[!-~]+", text):
        raise _refused(
            name, None, f"is no token: of its {len(text)} characters not all are printable ASCII without spaces; copy it "
            "again, as `tenure token` or `tenure token create NAME` prints it"
        )  # fmt: skip
    return text


def _url(name: str, text: str | None) -> str | None:
    if text is None:
        return None
    remedy = "write where the portal listens, such as http://127.0.0.1:8080, and nothing after it"
    shown = _hidden(text)
    try:
        parts = urlsplit(text)
        if parts.port == 0:
            raise ValueError("nobody's")
    except ValueError:  # whose text may be a piece of a password
        raise _refused(name, shown, f"is no URL: its host or its port cannot be read; {remedy}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"[^!-~]", text):
        raise _refused(name, shown, f"is no address of a platform; {remedy}")
    if "@" in parts.netloc:
        raise _refused(name, shown, "has a name or a password in it; a platform takes TENURE_TOKEN instead")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise _refused(name, shown, f"has a path; {remedy}")
    return text


def _hidden(url: str) -> str:
    """Passwords become `***`, also in what is no URL but may have been meant as one."""
    return _PASSWORD.sub(lambda found: (found["user"] or found["key"]) + "***", url)


def _refused(name: str, shown: str | None, rest: str) -> InvalidRequest:
    """`shown` is None where nobody may see it."""
    given = name if shown is None else f"{name}={shown!r}" if name.isupper() else f"{name} {shown!r}"
    return InvalidRequest(f"{given} {rest}", field=name)
