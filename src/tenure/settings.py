"""The only reader of the environment and of config files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Settings", "load"]

BASE_ENV = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")


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
    """Read the environment: TENURE_HOME (default `~/.tenure`), TENURE_LEDGER_URL, TENURE_HOST, TENURE_PORT, TENURE_GATEWAY_HOST, TENURE_GATEWAY_PORT, TENURE_GATEWAY_TOKENS, TENURE_GATEWAY_SILENCE, TENURE_TOKEN, TENURE_URL, TENURE_BOOT_ID."""
    env = os.environ if environ is None else environ
    home = Path(env.get("TENURE_HOME") or Path.home() / ".tenure").expanduser().absolute()
    return Settings(
        home=home,
        ledger_url=env.get("TENURE_LEDGER_URL") or f"sqlite:///{home / 'ledger.sqlite3'}",
        host=env.get("TENURE_HOST") or "127.0.0.1",
        port=int(env.get("TENURE_PORT") or 0),
        gateway_host=env.get("TENURE_GATEWAY_HOST") or "127.0.0.1",
        gateway_port=int(env.get("TENURE_GATEWAY_PORT") or 0),
        gateway_tokens=env.get("TENURE_GATEWAY_TOKENS", "") not in ("", "0"),
        gateway_silence_s=float(env.get("TENURE_GATEWAY_SILENCE") or 600),
        token=env.get("TENURE_TOKEN") or None,
        url=env.get("TENURE_URL") or None,
        boot_id=env.get("TENURE_BOOT_ID") or None,
        base_env={name: env[name] for name in BASE_ENV if name in env},
    )
