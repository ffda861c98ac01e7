"""What else passes a request on to a model: nginx, LiteLLM's proxy, and aiohttp with nothing around it.

Each gets a port of its own and one upstream.  One that cannot be started says why, and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from .peers import Absent, free_ports
from .rig import Plan

__all__ = ["passing"]

BARE = Path(__file__).with_name("gateway_bare.py")
LITELLM = "litellm[proxy]"


@contextlib.contextmanager
def passing(plan: Plan, upstream: int) -> Iterator[tuple[dict[str, int], dict[str, str]]]:
    """Ports by name, and the reasons of those that are not there."""
    ports: dict[str, int] = {}
    reasons: dict[str, str] = {}
    kinds: dict[str, Callable[[Plan, int, contextlib.ExitStack], int]] = {
        "aiohttp": _aiohttp,
        "nginx": _nginx,
        "LiteLLM": _litellm,
    }
    with contextlib.ExitStack() as ends:
        for name, start in kinds.items() if plan.peers else ():
            try:
                ports[name] = start(plan, upstream, ends)
            except (Absent, OSError, subprocess.SubprocessError) as error:
                reasons[name] = str(error)
                plan.say(f"{name}: {error}")
        yield ports, reasons


def _aiohttp(plan: Plan, upstream: int, ends: contextlib.ExitStack) -> int:
    (port,) = free_ports(1)
    ends.enter_context(_started([sys.executable, "-P", str(BARE), str(port), str(upstream)], port))
    return port


def _nginx(plan: Plan, upstream: int, ends: contextlib.ExitStack) -> int:
    program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if program is None:
        raise Absent("there is no nginx on this machine (Debian has it: nginx-light)")
    folder, (port,) = plan.scratch / "nginx", free_ports(1)
    folder.mkdir()
    paths = " ".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off; pid {folder}/pid; error_log stderr crit; worker_processes 1; events {{ worker_connections 1024; }}\n"
        f"http {{ access_log off; keepalive_requests 10000000; {paths}\n"
        f"upstream m {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 10000000; }}\n"
        f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://m; proxy_http_version 1.1; proxy_buffering off; "
        'proxy_set_header Connection ""; } } }\n'
    )
    ends.enter_context(_started([program, "-c", str(config)], port))
    return port


def _litellm(plan: Plan, upstream: int, ends: contextlib.ExitStack) -> int:
    """As its documents start it: one worker, no database, no key, an upstream that speaks OpenAI's words."""
    program = shutil.which("litellm") or _installed(plan)
    folder, (port,) = plan.scratch / "litellm", free_ports(1)
    folder.mkdir()
    model = {
        "model_name": "small",
        "litellm_params": {"model": "openai/small", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "none"},
    }
    config = folder / "config.json"  # JSON is YAML
    config.write_text(json.dumps({"model_list": [model]}))
    environment = os.environ | {
        "HOME": str(folder),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # no key is asked for by ours on loopback either
    }
    command = [program, "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    with (folder / "log").open("wb") as log:
        ends.enter_context(_started(command, port, environment=environment, log=log.fileno(), patience_s=120))
    return port


def _installed(plan: Plan) -> str:
    venv = plan.scratch / "litellm-venv"
    plan.say("LiteLLM: installing into a venv of its own (about a minute)")
    subprocess.run([sys.executable, "-m", "venv", venv], check=True, capture_output=True)
    done = subprocess.run(
        [venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", LITELLM],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        shutil.rmtree(venv)
        raise Absent(f"pip could not install {LITELLM}: {(done.stderr.strip() or '?').splitlines()[-1]:.120}")
    return str(venv / "bin" / "litellm")


@contextlib.contextmanager
def _started(
    command: Sequence[str],
    port: int,
    *,
    environment: Mapping[str, str] | None = None,
    log: int | None = None,
    patience_s: float = 20,
) -> Iterator[None]:
    """Runs until the block is left.  Raises Absent where it does not listen in time."""
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + patience_s
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                if process.poll() is not None:
                    raise Absent(f"{command[0]} ended with {process.returncode}") from None
                if time.monotonic() > deadline:
                    raise Absent(f"{command[0]} did not listen within {patience_s:g} s") from None
                time.sleep(0.02)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
