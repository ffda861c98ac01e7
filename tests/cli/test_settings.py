"""What the environment says: taken as it is meant, or refused by name before anything is done with it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tenure.domain.errors import InvalidRequest
from tenure.settings import NAMES, load, strangers

from .conftest import Home, close

BAD = {
    "TENURE_HOME": ["~nobody-of-that-name/x"],
    "TENURE_LEDGER_URL": [
        "nonsense", "/data/x.db", "sqlite:", "sqlite://", "sqlite:///", "sqlite:////", "sqlite:///:memory:", "sqlite:/x.db",
        "sqlite://x.db", "sqlite:////x/", "sqlite:////x.db?mode=ro", "postgres://h/d", "mysql://h/d", "://", "http://[::1",
        "postgresql://h:high/d", "postgresql://h:99999/d", "postgresql://h e/d", "postgresql:h/d", " ",
    ],
    "TENURE_HOST": ["http://127.0.0.1", "127.0.0.1:80", "a b", "a..b", "x" * 64, ".", "[", "host/", "\n"],
    "TENURE_GATEWAY_HOST": ["*", "0.0.0.0:80", "::1/128", " 127.0.0.1"],
    "TENURE_PORT": ["high", "-1", "65536", "000000999999", "9" * 5000, "٣", "1.5", " 1", "0x50"],
    "TENURE_GATEWAY_PORT": ["any", "70000"],
    "TENURE_GATEWAY_TOKENS": ["maybe", "2", "-"],
    "TENURE_GATEWAY_SILENCE": ["nan", "inf", "-inf", "0", "-3", "10m", "1e9", "long", "0x10"],
    "TENURE_TOKEN": ["a b", "secret\r", "sécret", "\n"],
    "TENURE_URL": [
        "localhost:80", "127.0.0.1", "http://", "http:/h", "http://h:x", "http://h:0", "http://h:99999", "http://h/api/v1",
        "http://h?x", "http://h#x", "ftp://h", "unix:///x", "http://h :80", "http://h\r", "http://[::1", "//h", "http://u@h",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_what_cannot_work_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        load({"HOME": "/tmp", name: value})
    said = str(refused.value)
    assert refused.value.field == name
    assert said.startswith(name)
    assert any(remedy in said for remedy in ("write ", "copy it again", "takes TENURE_TOKEN instead"))
    assert (f"{name}={value!r}" in said) is (name != "TENURE_TOKEN")


GOOD = [
    ("TENURE_HOME", "/srv/tenure", "home", Path("/srv/tenure")),
    ("TENURE_HOME", "~/lab", "home", Path.home() / "lab"),
    ("TENURE_LEDGER_URL", "sqlite:////data/x.db", "ledger_file", Path("/data/x.db")),
    ("TENURE_LEDGER_URL", "sqlite+pysqlite:////data/a b.db", "ledger_file", Path("/data/a b.db")),
    ("TENURE_LEDGER_URL", "postgresql://u@h:5432/d", "ledger_url", "postgresql://u@h:5432/d"),
    ("TENURE_LEDGER_URL", "postgresql+psycopg://u@/d?host=/run/pg", "ledger_file", None),
    ("TENURE_LEDGER_URL", "postgresql:///d", "ledger_url", "postgresql:///d"),
    ("TENURE_LEDGER_URL", "postgresql://u:p/q@[::1]:5432/d", "ledger_url", "postgresql://u:p/q@[::1]:5432/d"),
    ("TENURE_HOST", "::1", "host", "::1"),
    ("TENURE_HOST", "[fe80::1%eth0]", "host", "fe80::1%eth0"),
    ("TENURE_HOST", "lab.example.org.", "host", "lab.example.org."),
    ("TENURE_HOST", "0.0.0.0", "host", "0.0.0.0"),
    ("TENURE_PORT", "65535", "port", 65535),
    ("TENURE_GATEWAY_PORT", "0", "gateway_port", 0),
    ("TENURE_GATEWAY_TOKENS", "1", "gateway_tokens", True),
    ("TENURE_GATEWAY_TOKENS", "Yes", "gateway_tokens", True),
    ("TENURE_GATEWAY_TOKENS", "false", "gateway_tokens", False),
    ("TENURE_GATEWAY_TOKENS", "0", "gateway_tokens", False),
    ("TENURE_GATEWAY_SILENCE", "0.5", "gateway_silence_s", 0.5),
    ("TENURE_TOKEN", "a-token_of.signs+/=", "token", "a-token_of.signs+/="),
    ("TENURE_URL", "http://127.0.0.1:8080/", "url", "http://127.0.0.1:8080/"),
    ("TENURE_URL", "HTTPS://[::1]:8443", "url", "HTTPS://[::1]:8443"),
]


@pytest.mark.parametrize(("name", "value", "field", "read"), GOOD)
def test_what_works_is_taken(name: str, value: str, field: str, read: object) -> None:
    assert getattr(load({"HOME": "/tmp", name: value}), field) == read


@pytest.mark.parametrize("name", BAD)
def test_an_empty_value_is_none(name: str) -> None:
    assert load({"HOME": "/tmp", name: ""}) == load({"HOME": "/tmp"})


@pytest.mark.parametrize("home", ["/srv/what?", "/srv/a b", "/srv/100%", "/srv/ü#"])
def test_the_ledger_of_a_home_lies_in_it_whatever_its_name_is(home: str) -> None:
    assert load({"TENURE_HOME": home}).ledger_file == Path(home) / "ledger.sqlite3"


@pytest.mark.parametrize("url", [
    "postgresql://u:secret@h/d", "postgresql://h/d?user=u&password=secret", "postgresql://u:secret/secret@h/d", "u:secret@h/d",
    "postgresql://u:secret[@h/d", "postgresql://u:a@secret@h/d", "mysql://u:secret@h/d",
])  # fmt: skip
@pytest.mark.parametrize("name", ["TENURE_LEDGER_URL", "TENURE_URL"])
def test_a_password_is_never_shown(name: str, url: str) -> None:
    try:
        said = load({name: url}).ledger_shown
    except InvalidRequest as refused:
        said = str(refused)
    assert "secret" not in said
    assert "***" in said


@pytest.mark.parametrize("name", [name for name in BAD if name != "TENURE_HOME"])
def test_up_and_every_client_say_it_and_touch_nothing(nowhere: Home, name: str) -> None:
    bad = BAD[name][0]
    for words in (("up", "-d"), ("up",), ("ps",), ("submit", "--", "true"), ("doctor",)):
        answer = nowhere.tenure(*words, env={name: bad})
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith(f"tenure {words[0]}: {name}")
        assert answer.err.count("\n") == 1
    assert not nowhere.path.exists()


def test_a_home_of_any_name_has_its_ledger_in_it_and_doctor_finds_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "what? #1 is 100%20 mine")
    try:
        assert home.up().code == 0
        assert home.ok("run", "--", "echo", "hi") == "hi\n"
        assert re.search(r"^ok +ledger +.*/what\? #1 is 100%20 mine/ledger.sqlite3 is whole$", home.ok("doctor"), re.M)
        assert [path.name for path in tmp_path.iterdir()] == [home.path.name]
    finally:
        close(home)


def test_a_name_that_is_none_is_said_and_changes_nothing(private: Home) -> None:
    misspelt = {"TENURE_GATEWAY_PROT": "80"}
    said = "TENURE_GATEWAY_PROT is no setting"
    up = private.tenure("up", "-d", "--card", "8x16Gi", env=misspelt)
    assert (up.code, said in up.err, "did you mean TENURE_GATEWAY_PORT?" in up.err) == (0, True, True)
    doctor = private.tenure("doctor", env=misspelt)
    assert (doctor.code, said in doctor.out, "did you mean TENURE_GATEWAY_PORT?" in doctor.out) == (0, True, True)
    assert private.tenure("ps", env=misspelt).err == ""
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    for array in ([], ["--array", "1-1"]):
        job = private.submit(*array, "--", sys.executable, "-c", show)
        private.ok("wait", job)
        given = json.loads(private.ok("logs", f"{job}_1" if array else job))
        assert "TENURE_JOB_ID" in given
        assert strangers(given) == [], "what a job is given is not taken for a setting"


def test_the_page_lists_every_setting() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    listed = page.partition("\n## Settings")[2].partition("\n## ")[0].partition("```")[0]
    assert set(re.findall(r"`(TENURE_[A-Z_]+)=", listed)) == set(NAMES)
    assert {*BAD, "TENURE_BOOT_ID"} == set(NAMES)


@pytest.mark.parametrize(
    ("flag", "bad"), [("--port", "high"), ("--port", "٣"), ("--host", "http://x"), ("--host", "a:1")]
)
def test_a_flag_is_held_to_the_same(private: Home, flag: str, bad: str) -> None:
    answer = private.up(flag, bad)
    assert answer.code == 2
    assert f"{flag} {bad!r} is no " in answer.err


def test_a_ledger_of_another_name_is_found_from_every_directory(private: Home, tmp_path: Path) -> None:
    """A path that is not whole begins at the home, for the daemon and for what looks into it at rest."""
    private.env["TENURE_LEDGER_URL"] = "sqlite:///books.sqlite3"
    assert private.up().code == 0
    private.ok("run", "--", "true")
    private.ok("down")
    assert (private.path / "books.sqlite3").is_file()
    assert not (private.path / "ledger.sqlite3").exists()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert "books.sqlite3 is whole" in private.ok("doctor", cwd=elsewhere)
    private.ok("capacity", cwd=elsewhere)
    assert list(elsewhere.iterdir()) == []
