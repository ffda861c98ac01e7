"""Who may come in, over which socket, and what a browser may be made to send: nothing that its user did not ask for."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import socket
import stat
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tenure.domain.errors import Forbidden, Unavailable
from tenure.portal.auth import Gate, Sessions
from tenure.portal.sockets import listen_tcp
from tenure.portal.tokens import TokenStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Answer, Door

    Opener = Callable[..., AbstractContextManager[Door]]

NOBODY = 65534


def by_token(door: Door, token: str, method: str = "GET", path: str = "/api/v1/jobs", **headers: str) -> Answer:
    return door.ask(method, path, headers={"Authorization": f"Bearer {token}", **headers}, over="tcp")


def cookie_of(door: Door) -> str:
    answer = door.ask("GET", door.server.login_url().removeprefix(door.at.url.rstrip("/")), over="tcp")
    assert answer.status == 303
    return answer.headers["set-cookie"].partition(";")[0]


def test_the_socket_is_its_owners_alone(door: Door) -> None:
    assert stat.S_IMODE(door.at.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(door.at.socket.parent.stat().st_mode) == 0o700
    assert door.ask("GET", "/api/v1/jobs").status == 200


def test_another_user_is_refused_by_uid(door: Door) -> None:
    """As the kernel tells it: also where the folder and the socket would let them in."""
    if os.getuid() != 0:
        refused = Gate(app=_never, sessions=Sessions(TokenStore(Path("/nonexistent"))))
        with pytest.raises(Exception, match="Forbidden"):
            refused._admit({"type": "http", "tenure.peer": (1, NOBODY, NOBODY)})
        return
    script = (
        "import os,socket\ns=socket.socket(socket.AF_UNIX)\nf=os.open(os.environ['DIR'],os.O_RDONLY)\nos.setuid(65534)\n"
        "s.connect('/proc/self/fd/%d/api.sock'%f)\n"
        "s.sendall(b'GET /api/v1/jobs HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n')\n"
        "print(s.makefile('rb').readline().decode())\n"
    )

    def ask() -> str:
        environ = {"DIR": str(door.at.socket.parent)}
        done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    assert "PermissionError" in ask()
    try:
        door.at.socket.parent.chmod(0o755)
        door.at.socket.chmod(0o666)
        assert "403" in ask()
    finally:
        door.at.socket.chmod(0o600)
        door.at.socket.parent.chmod(0o700)


async def _never(*_: object) -> None:
    raise AssertionError("nobody gets this far")


def test_over_tcp_a_token_is_needed_and_must_be_right(door: Door) -> None:
    assert door.ask("GET", "/api/v1/jobs", over="tcp").status == 401
    bare = door.ask("GET", "/metrics", over="tcp")
    assert (bare.status, bare.headers["www-authenticate"]) == (401, 'Bearer realm="tenure"')
    assert by_token(door, door.token).status == 200
    assert by_token(door, door.token[:-1]).status == 401
    assert by_token(door, "").status == 401
    assert by_token(door, "\xff" * 43).status == 401
    assert door.ask("GET", "/api/v1/jobs", headers={"Authorization": f"Basic {door.token}"}, over="tcp").status == 401
    for path in ("/healthz", "/version", "/openapi.json", "/login", "/static/tenure.css"):
        assert door.ask("GET", path, over="tcp").status == 200, path
    assert door.ask("POST", "/api/v1/jobs", {"argv": ["true"]}, over="tcp").status == 401


def test_a_users_token_may_do_what_users_may_and_ends_when_revoked(door: Door) -> None:
    made = door.ask("POST", "/api/v1/tokens", {"name": "ci"})
    assert made.status == 201
    token = made.json["token"]
    assert made.headers["cache-control"] == "no-store"
    mine = door.ask(
        "POST", "/api/v1/jobs", {"argv": ["sleep", "60"]}, headers={"Authorization": f"Bearer {token}"}, over="tcp"
    )
    assert (mine.status, mine.json["owner"]) == (201, "ci")
    other = door.submit("sleep", "60")
    assert by_token(door, token, "POST", f"/api/v1/jobs/{other}:cancel").status == 403
    assert by_token(door, token, "POST", f"/api/v1/jobs/{mine.json['id']}:cancel").status == 200
    for method, path in (("POST", "/api/v1/daemon:stop"), ("GET", "/api/v1/tokens"), ("POST", "/api/v1/daemon:login"), ("POST", "/api/v1/policy:reload"), ("DELETE", "/api/v1/tokens/operator")):  # fmt: skip
        assert by_token(door, token, method, path).status == 403, path
    assert ("ci", "user") in {(row["name"], row["role"]) for row in door.ask("GET", "/api/v1/tokens").json}
    assert token not in str(door.ask("GET", "/api/v1/tokens").body)
    assert door.ask("DELETE", "/api/v1/tokens/ci").status == 204
    assert by_token(door, token).status == 401
    door.ask("POST", f"/api/v1/jobs/{other}:cancel", {"grace_s": 1})
    door.wait(other)


def test_a_browser_comes_in_by_an_address_that_works_once(door: Door) -> None:
    url = door.ask("POST", "/api/v1/daemon:login").json["url"]
    assert door.token not in url
    path = url.removeprefix(door.at.url.rstrip("/"))
    first = door.ask("GET", path, over="tcp")
    assert (first.status, first.headers["location"]) == (303, "/")
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert door.token not in cookie
    pair = cookie.partition(";")[0]
    page = door.ask("GET", "/jobs", headers={"Cookie": pair, "Accept": "text/html"}, over="tcp")
    assert page.status == 200
    again = door.ask("GET", path, over="tcp")
    assert again.status == 401
    assert "set-cookie" not in again.headers
    forged = door.ask("GET", "/jobs", headers={"Cookie": pair[:-1] + ("0" if pair[-1] != "0" else "1")}, over="tcp")
    assert forged.status == 401
    name, _, rest = pair.partition("|")
    for until in ("\xb2", "9" * 5000, "", "-1", "x"):
        forged = door.ask("GET", "/jobs", headers={"Cookie": f"{name}|{until}|{rest.rpartition('|')[2]}"}, over="tcp")
        assert forged.status == 401, until


def test_cookies_of_other_programs_on_this_machine_do_no_harm(door: Door) -> None:
    for other in ("a@b=1; ", "=; ;;", "x[]=1; {}=2; ", "\xe9=\xe9; "):
        headers = {"Cookie": other + cookie_of(door)}
        assert door.ask("GET", "/jobs", headers=headers, over="tcp").status == 200, other


def test_a_token_can_be_pasted_and_nobody_is_sent_elsewhere(door: Door) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    good = door.ask("POST", "/login", f"token={door.token}&next=/jobs".encode(), headers=form, over="tcp")
    assert (good.status, good.headers["location"]) == (303, "/jobs")
    for target in ("//evil.example", "https://evil.example/", "/\\evil.example"):
        sent = door.ask("POST", "/login", f"token={door.token}&next={target}".encode(), headers=form, over="tcp")
        assert sent.headers["location"] == "/"
    bad = door.ask("POST", "/login", b"token=wrong", headers=form, over="tcp")
    assert bad.status == 401
    assert b"not valid" in bad.body


def test_a_page_without_a_cookie_leads_to_the_login(door: Door) -> None:
    answer = door.ask("GET", "/jobs?all=1", headers={"Accept": "text/html"}, over="tcp")
    assert (answer.status, answer.headers["location"]) == (303, "/login?next=/jobs%3Fall%3D1")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "{self}"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:{port}"}, 403),
        ({"Host": "localhost:{port}"}, 200),
        ({"Host": "127.0.0.1:9999"}, 200),  # a tunnel's port
        ({"Host": "[::1]:{port}"}, 200),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),  # another port of this machine
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),  # a link
    ],
)
def test_another_web_site_gets_nothing_with_somebodys_cookie(door: Door, headers: dict[str, str], status: int) -> None:
    filled = {k: v.format(port=door.at.port, self=door.at.url.rstrip("/")) for k, v in headers.items()}
    connection = door.tcp()
    connection.putrequest("GET", "/jobs", skip_host=True)
    for name, value in {"Host": f"{door.at.host}:{door.at.port}", "Cookie": cookie_of(door), **filled}.items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == status
    connection.close()


def test_a_form_on_another_site_starts_no_job(door: Door) -> None:
    body = json.dumps({"argv": ["true"]}).encode()
    headers = {"Cookie": cookie_of(door), "Content-Type": "text/plain", "Origin": "http://evil.example"}
    assert door.ask("POST", "/api/v1/jobs", body, headers=headers, over="tcp").status == 403
    headers["Origin"] = door.at.url.rstrip("/")
    assert door.ask("POST", "/api/v1/jobs", body, headers=headers, over="tcp").status == 201


def test_off_loopback_it_starts_with_a_strong_token_only(open_door: Opener, tmp_path: Path) -> None:
    env = {"TENURE_HOST": "0.0.0.0"}
    home = tmp_path / "home"
    with pytest.raises(Forbidden, match="there is no token"), open_door(home, env=env):
        pass
    (home / "tokens").mkdir(mode=0o700)
    token = home / "tokens" / "operator"
    token.write_text("letmein\n")
    token.chmod(0o600)
    with pytest.raises(Forbidden, match="weak") as refused, open_door(home, env=env):
        pass
    assert "letmein" not in str(refused.value)
    token.write_text(secrets.token_urlsafe(32))
    with open_door(home, env=env) as door:
        assert door.at.host == "0.0.0.0"
        connection = http.client.HTTPConnection("127.0.0.1", door.at.port, timeout=10)
        connection.request("GET", "/api/v1/jobs", headers={"Authorization": f"Bearer {door.token}"})
        assert connection.getresponse().status == 200
        connection.close()


def test_a_home_on_a_long_strange_path_and_a_port_that_stays(open_door: Opener, tmp_path: Path) -> None:
    home = tmp_path / ("Mein Zuhause ü " + "x" * 120) / "训练 $(rm)"
    with open_door(home) as door:
        first = door.at.port
        assert len(str(door.at.socket)) > 160
        assert door.ask("GET", "/readyz").status == 200
        address = json.loads((home / "daemon" / "address.json").read_text())
        assert address == {"socket": str(door.at.socket), "host": "127.0.0.1", "port": first, "url": door.at.url}
    assert not door.at.socket.exists()
    with open_door(home) as door:
        assert door.at.port == first


def test_a_socket_that_a_dead_daemon_left_is_replaced(open_door: Opener, tmp_path: Path) -> None:
    left = tmp_path / "home" / "daemon" / "api.sock"
    left.parent.mkdir(parents=True, mode=0o700)
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(left))
    dead.close()
    with open_door(tmp_path / "home") as door:
        assert door.ask("GET", "/healthz").status == 200


def test_a_taken_port_is_a_clear_error(open_door: Opener, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match=f"cannot listen on 127.0.0.1:{port}"), open_door(tmp_path, env={"TENURE_PORT": str(port)}):  # fmt: skip
            pass


@pytest.mark.parametrize("settings", ["TENURE", "TENURE_GATEWAY"])
def test_where_nobody_can_listen_the_setting_is_named(settings: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Unavailable, match=f"in use; {settings}_PORT=0 takes"):
            listen_tcp("127.0.0.1", taken.getsockname()[1], settings=settings)
    for host in ("192.0.2.1", "no-such-machine.invalid", "x" * 70):  # not of this machine, of none, and no name at all
        with pytest.raises(Unavailable, match=f"cannot listen on {host}.*; {settings}_HOST takes"):
            listen_tcp(host, 0, settings=settings)


def test_stopping_ends_open_streams_at_once(open_door: Opener, tmp_path: Path) -> None:
    import time

    with open_door(tmp_path / "home") as door:
        connection = door.unix()
        connection.request("GET", "/api/v1/events?watch=1")
        stream = connection.getresponse()
        loud = door.submit("sh", "-c", "head -c 5000000 /dev/zero")
        door.wait(loud)
        job = door.submit("sleep", "60", hold=True)
        waiting = door.unix()
        waiting.request("GET", f"/api/v1/jobs/{job}:wait?timeout=60")
        stuck = door.unix()
        stuck.connect()
        stuck.sock.sendall(f"GET /api/v1/jobs/{loud}/logs HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        begun = time.monotonic()
        door.server.stop()
        assert time.monotonic() - begun < 15  # the one that waits for the job would wait a minute
        assert b"listening" in stream.read()
        for open_one in (connection, waiting, stuck):
            open_one.close()
