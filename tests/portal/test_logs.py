"""Logs: every byte as it was written, the last lines of anything, in memory that does not grow with the file."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.portal.logs import BLOCK, read_from, size_of, tail_start
from tenure.portal.terminal import LINE_CHARS, TAIL_LINES, render, tail


def shown(path: Path) -> list[str]:
    return ["".join(span.text for span in line) for line in tail(path).lines]


def settled(*lines: str) -> list[str]:
    return ["".join(span.text for span in line) for line in render(lines)]


@pytest.mark.parametrize(
    ("data", "lines", "rest"),
    [
        (b"", 3, b""),
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\nb\nc\n", 0, b""),
        (b"a\nb\n", 99, b"a\nb\n"),
        (b"\n\n\n", 2, b"\n\n"),
        (b"one\rtwo\rthree\nx\n", 1, b"x\n"),
        (b"\xff\xfe\n\x80\n", 1, b"\x80\n"),
    ],
)
def test_the_last_lines(tmp_path: Path, data: bytes, lines: int, rest: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(data)
    assert b"".join(read_from(path, tail_start(path, lines))) == rest


@given(data=st.binary(max_size=200).map(lambda raw: raw.replace(b"x", b"\n")), pad=st.sampled_from([0, BLOCK - 3, BLOCK, 2 * BLOCK + 1]), lines=st.integers(1, 9))  # fmt: skip
def test_the_last_lines_are_those_that_splitting_finds(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, pad: int, lines: int
) -> None:
    path = tmp_path_factory.mktemp("logs") / "log"
    whole = b"p" * pad + data
    path.write_bytes(whole)
    pieces = whole.split(b"\n")
    rows = [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
    assert b"".join(read_from(path, tail_start(path, lines))) == b"".join(rows[-lines:])


def test_a_range_is_exactly_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    data = bytes(range(256)) * 1024
    path.write_bytes(data)
    assert b"".join(read_from(path, 100_000)) == data[100_000:]
    assert b"".join(read_from(path, 7, 9)) == data[7:9]
    assert b"".join(read_from(path, len(data) + 5)) == b""
    assert size_of(path) == len(data)
    assert size_of(None) == size_of(tmp_path / "none") == 0


def test_two_hundred_megabytes_and_a_line_of_fifty_cost_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(b"first\n")
        file.seek(150_000_000)
        file.write(b"\n" + b"y" * 50_000_000 + b"\nlast\n")
    tracemalloc.start()
    try:
        start = tail_start(path, 1)
        assert b"".join(read_from(path, start)) == b"last\n"
        two = tail_start(path, 2)
        assert size_of(path) - two == 50_000_000 + len(b"\nlast\n")
        assert sum(len(block) for block in read_from(path, two)) == 50_000_000 + len(b"\nlast\n")
        view = tail(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000
    assert "".join(span.text for span in view.lines[-1]) == "last"


def test_a_progress_bar_shows_where_it_stopped() -> None:
    assert settled("10%\r20%\r100%") == ["100%"]
    assert settled("downloading\rdone") == ["doneloading"]
    assert settled("half\r") == ["half"]
    assert settled("windows line\r") == ["windows line"]


def test_colours_stay_and_everything_else_of_a_terminal_goes() -> None:
    (line,) = render(["\x1b[31mred\x1b[0m \x1b[1;92mbright\x1b[22m plain\x1b[2K\x1b[3;4H\x1b]0;title\x07end\x07"])
    assert [(span.text, span.style) for span in line if span.text.strip()] == [
        ("red", "a31"),
        ("bright", "a92 b"),
        (" plain", "a92"),
        ("end", "a92"),
    ]
    first, second = render(["\x1b[33mopen", "still\x1b[39m no more"])
    assert first[0].style == second[0].style == "a33"
    assert second[-1].style == ""


@pytest.mark.parametrize("codes", ["1" * 5000, "31;" + "0" * 5000, ";" * 5000, ":", "38;5;1"])
def test_codes_that_no_terminal_knows_hide_no_text(codes: str) -> None:
    assert settled(f"a \x1b[{codes}mword") == ["a word"]


def test_a_long_line_is_cut_with_a_marker_and_only_in_the_view(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"z" * 100_000 + b"\nshort\n")
    long, short = shown(path)
    assert long == "z" * LINE_CHARS + f" … {100_000 - LINE_CHARS:,} more characters on this line"
    assert short == "short"
    assert b"".join(read_from(path, 0)) == b"z" * 100_000 + b"\nshort\n"


def test_invalid_utf8_and_scripts_are_text(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xff\xfe ok\n<script>alert(1)</script>\n")
    assert shown(path) == ["\ufffd\ufffd ok", "<script>alert(1)</script>"]


def test_many_lines_are_the_last_ones_and_the_rest_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {n}\n" for n in range(5000)))
    view = tail(path)
    assert len(view.lines) == TAIL_LINES
    first = "".join(span.text for span in view.lines[0])
    assert path.read_bytes()[view.skipped :].startswith(first.encode() + b"\n")
    assert shown(path)[-1] == "line 4999"
