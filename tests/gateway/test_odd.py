"""Odd clients and odd servers: stalls, floods, slow readers, old and careful and hasty ways of speaking HTTP."""

from __future__ import annotations

import hashlib
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from .conftest import Home, eventually, gateway_pid, lines, opened
from .test_many import unchunked

SERVER = [sys.executable, "-P", str(Path(__file__).with_name("odd_server.py")), "{port}"]
HEAD = b"POST /v1/chat/completions HTTP/%b\r\nHost: localhost\r\nContent-Type: application/json\r\n%b\r\n"


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A platform of its own, with `odd` up and a bound of two seconds on silence."""
    folder = tmp_path_factory.mktemp("odd")
    with opened(folder / "home", TENURE_GATEWAY_SILENCE="2") as home:
        home.declare("odd", command=[*SERVER, str(folder / "seen")])
        home.reload()
        assert home.chat("odd").status == 200
        yield home


@pytest.fixture
def seen(odd: Home) -> Path:
    return odd.path.parent / "seen"


def dial(home: Home, *, timeout: float = 40) -> socket.socket:
    at = urlsplit(home.url)
    return socket.create_connection((at.hostname, at.port), timeout=timeout)


def post(body: bytes, *, version: bytes = b"1.1", more: bytes = b"") -> bytes:
    return HEAD % (version, b"Content-Length: %d\r\n%b" % (len(body), more)) + body


def all_of(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(65536), b""))


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError("it has gone")


def rest(odd: Home) -> None:
    eventually(lambda: (row := odd.model("odd"))["in_flight"] == row["held"] == 0)


def test_half_an_event_is_seen_at_once_and_who_leaves_frees_everything(home: Home, tmp_path: Path) -> None:
    """Where silence is waited for as long as it is by default: nothing comes but this half, and nobody but this client ends it."""
    home.declare("odd", command=[*SERVER, str(tmp_path / "seen")])
    home.reload()
    home.chat("odd")
    with dial(home) as client:
        client.sendall(post(b'{"model":"odd","stream":true,"do":"half"}'))
        read = b""
        while b'"hal' not in read:
            read += client.recv(65536)
        eventually(lambda: home.model("odd")["in_flight"] == 1)
        assert lines(tmp_path / "seen") == []
    eventually(lambda: [one["do"] for one in lines(tmp_path / "seen")] == ["half"])
    rest(home)
    assert home.model("odd")["state"] == "ready"


def test_a_server_that_stalls_in_a_stream_is_cut_off_after_the_bound(odd: Home) -> None:
    """The half event is closed by an empty line, and an event with the error follows."""
    began = time.monotonic()
    answer = odd.chat("odd", stream=True, do="half")
    assert 1.8 < time.monotonic() - began < 15
    half, error, end = answer.body.split(b"\n\n")
    assert half.endswith(b'"hal')
    said = json.loads(error.removeprefix(b"data: "))["error"]
    assert (said["code"], end) == ("upstream_failed", b"")
    assert "it said nothing for 2 s" in said["message"]
    rest(odd)


def test_a_server_that_has_not_begun_may_think_for_longer(odd: Home, seen: Path) -> None:
    """An answer that is no stream can take minutes.  Its client decides how long that is."""
    with dial(odd) as client:
        client.sendall(post(b'{"model":"odd","do":"silent"}'))
        client.settimeout(3)
        with pytest.raises(TimeoutError):
            client.recv(1)
    eventually(lambda: [one for one in lines(seen) if one["do"] == "silent"])
    rest(odd)


def test_a_reader_that_is_slow_slows_the_server_and_fills_no_memory(odd: Home, seen: Path) -> None:
    """200 MB are there to be had; it reads a little and stops.  Nothing is cut off for the client's own silence."""
    pid = gateway_pid(odd)
    before = rss_mb(pid)
    client = dial(odd)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
    client.sendall(post(b'{"model":"odd","stream":true,"do":"flood","mb":200}'))
    client.recv(1000)
    time.sleep(3)  # longer than the bound on silence
    assert rss_mb(pid) - before < 16
    eventually(lambda: odd.model("odd")["in_flight"] == 1)
    assert b"xxx" in client.recv(65536)
    client.close()
    (told,) = eventually(lambda: [one for one in lines(seen) if one["do"] == "flood"])
    assert told["sent"] < 40_000_000, "the rest was never sent"
    rest(odd)


def test_bodies_in_chunks(odd: Home) -> None:
    """The server gets the body whole, with its length."""
    body = json.dumps({"model": "odd", "text": "x" * 100_000}).encode()
    pieces = [body[n : n + 7000] for n in range(0, len(body), 7000)]
    with dial(odd) as client:
        client.sendall(HEAD % (b"1.1", b"Transfer-Encoding: chunked\r\nConnection: close\r\n"))
        for piece in pieces:
            client.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        client.sendall(b"0\r\n\r\n")
        answer = all_of(client)
    said = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert (said["size"], said["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
    assert "transfer-encoding" not in said["headers"]


def test_a_large_body_arrives_as_it_was_and_leaves_no_memory_behind(odd: Home) -> None:
    pid = gateway_pid(odd)
    body = json.dumps({"model": "odd", "image": "x" * 20_000_000}).encode()
    for _ in range(3):
        said = odd.ask("POST", "/v1/chat/completions", body).json
        assert (said["size"], said["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
    assert eventually(lambda: (mb := rss_mb(pid)) < 80 and mb)


@pytest.mark.parametrize(
    "said",
    [
        b'{"x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"x": ' + b"9" * 5000 + b"}",
        b'{"x": "',
        b"{\xff}",
        b"{\x00}",
    ],
    ids=["deep", "long number", "half", "no text", "nothing"],
)
def test_a_body_that_is_no_json_is_the_clients_mistake(odd: Home, said: bytes) -> None:
    refused = odd.ask("POST", "/v1/chat/completions", said)
    assert (refused.status, refused.error["code"], refused.error["type"]) == (
        400,
        "invalid_json",
        "invalid_request_error",
    )
    assert odd.chat("odd").status == 200


def test_one_after_the_other_without_waiting(odd: Home) -> None:
    """Pipelined: three requests in one write, three answers in their order."""
    asked = [post(b'{"model":"odd","n":%d}' % n) for n in range(3)]
    with dial(odd) as client:
        client.sendall(b"".join(asked[:2]) + post(b'{"model":"odd"}', more=b"Connection: close\r\n"))
        answer = all_of(client)
    assert answer.count(b"HTTP/1.1 200") == 3
    rest(odd)


def test_a_web_socket_is_refused_in_words(odd: Home) -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGVzdHRlc3R0ZXN0dGVzdA==\r\nSec-WebSocket-Version: 13\r\n"
    with dial(odd) as client:
        client.sendall(b"GET /v1/realtime?model=odd HTTP/1.1\r\nHost: localhost\r\n" + upgrade + b"\r\n")
        answer = all_of(client)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 501")
    assert json.loads(body)["error"]["code"] == "no_websockets"
    assert "Unsupported" not in (odd.path / "daemon" / "gateway.log").read_text()


def test_an_upgrade_that_is_not_taken_is_no_hindrance(odd: Home) -> None:
    """What curl says with --http2."""
    with dial(odd) as client:
        client.sendall(post(b'{"model":"odd"}', more=b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"))
        assert client.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("stream", ["true", "false"])
@pytest.mark.parametrize("encoding", [b"gzip, br", b"zstd", b"*"])
def test_whatever_a_client_can_unpack_the_server_is_asked_for_plain_bytes(
    odd: Home, stream: str, encoding: bytes
) -> None:
    said = odd.ask("POST", "/v1/chat/completions", b'{"model":"odd"}', headers={"Accept-Encoding": encoding.decode()})
    assert said.json["headers"]["accept-encoding"] == "identity"
    if stream == "true":
        answer = odd.chat("odd", stream=True, do="words", headers={"Accept-Encoding": encoding.decode()})
        assert "content-encoding" not in answer.headers
        assert answer.body == b"data: word0\n\ndata: word1\n\ndata: word2\n\ndata: [DONE]\n\n"


def test_an_old_client_gets_its_stream_word_by_word_and_no_chunks(odd: Home, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    with dial(odd) as client:
        said = {
            "model": "odd",
            "stream": True,
            "do": "words",
            "heard": str(heard),
        }  # the second word waits for the first
        client.sendall(post(json.dumps(said).encode(), version=b"1.0"))
        read = b""
        while b"word0" not in read:
            read += client.recv(65536)
        heard.touch()
        read += all_of(client)
    head, _, body = read.partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower()
    assert b"connection: close" in head.lower()
    assert body == b"data: word0\n\ndata: word1\n\ndata: word2\n\ndata: [DONE]\n\n"
    rest(odd)


def test_an_old_client_that_is_held_hears_pings_without_chunks(home: Home) -> None:
    home.declare("small", "--load", "1.6")
    home.reload()
    with dial(home) as client:
        client.sendall(post(b'{"model":"small","stream":true,"chunks":2}', version=b"1.0"))
        head, _, body = all_of(client).partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower()
    assert body.startswith(b": ping\n\ndata: ")
    assert body.endswith(b"data: [DONE]\n\n")


def test_a_careful_client_is_told_to_go_on_before_it_is_held(home: Home) -> None:
    home.declare("small", "--load", "0.8")
    home.reload()
    body = b'{"model":"small"}'
    with dial(home) as client:
        client.sendall(HEAD % (b"1.1", b"Content-Length: %d\r\nExpect: 100-continue\r\n" % len(body)))
        began = time.monotonic()
        assert client.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n", "the body names the model: it is asked for first"
        client.sendall(body)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        assert time.monotonic() - began > 0.5


def test_a_careful_client_whose_body_is_not_wanted_is_told_before_it_is_sent(odd: Home) -> None:
    with dial(odd) as client:
        client.sendall(HEAD % (b"1.1", b"Content-Length: 900000000\r\nExpect: 100-continue\r\n"))
        assert client.recv(65536).startswith(b"HTTP/1.1 413")


def test_head_has_the_length_and_no_body_and_wakes_nobody(odd: Home) -> None:
    answer = odd.ask("HEAD", "/some/file", headers={"X-Tenure-Model": "odd"})
    assert (answer.status, answer.headers["content-length"], answer.body) == (200, "12345", b"")
    listed = odd.ask("HEAD", "/v1/models")
    assert (listed.status, listed.body) == (200, b"")
    assert int(listed.headers["content-length"]) > 50
    odd.rest("POST", "/models/odd:sleep")
    odd.until("odd", "asleep")
    odd.hears("odd", "asleep")
    wakes = odd.model("odd")["wakes"]
    asleep = odd.ask("HEAD", "/v1/chat/completions", headers={"X-Tenure-Model": "odd"})
    assert (asleep.status, asleep.body) == (503, b"")
    assert odd.ask("GET", "/v1/chat/completions", headers={"X-Tenure-Model": "odd"}).status == 503
    assert odd.model("odd")["wakes"] == wakes
    assert odd.chat("odd").status == 200


def test_a_thousand_held_fit_into_memory(home: Home, tmp_path: Path) -> None:
    home.declare("many", "--load-until", str(tmp_path / "loaded"))
    home.reload()
    pid = gateway_pid(home)
    before = rss_mb(pid)
    held = [dial(home) for _ in range(1000)]
    try:
        for client in held:
            client.sendall(post(b'{"model":"many","stream":true,"chunks":1}'))
        eventually(lambda: home.model("many")["held"] == 1000)
        assert rss_mb(pid) - before < 60
        assert rss_mb(pid) < 110
        (tmp_path / "loaded").touch()
        got: list[bytes] = [b""] * len(held)

        def read(numbers: range) -> None:
            for number in numbers:
                while not got[number].endswith(b"0\r\n\r\n"):
                    got[number] += held[number].recv(65536)

        readers = [threading.Thread(target=read, args=(range(n, 1000, 4),)) for n in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(60)
        assert all(unchunked(one.partition(b"\r\n\r\n")[2]).endswith(b"data: [DONE]\n\n") for one in got)
    finally:
        for client in held:
            client.close()
