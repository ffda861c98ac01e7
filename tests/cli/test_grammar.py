"""What a command line may say, and what is said back."""

from __future__ import annotations

import pytest

from tenure.cli.grammar import Option, Usage, Verb, parse

VERB = Verb(
    usage="try [flags] -- CMD",
    options=(
        Option(names=("--name", "-J"), value="NAME", help=""),
        Option(names=("--env", "-e"), value="K=V", many=True, help=""),
        Option(names=("--follow", "-f"), help=""),
        Option(names=("--all", "-a"), help=""),
        Option(names=("--gpu-memory",), value="AMOUNT", help=""),
    ),
    positionals=(0, None),
    command=True,
)


def test_after_two_dashes_nothing_is_touched() -> None:
    words = ["--name", "--", "-x", 'a "b" $(rm)\n', ""]
    assert parse(VERB, ["-f", "--", *words]).command == words


@pytest.mark.parametrize(
    "words", [["--name", "x"], ["--name=x"], ["-J", "x"], ["-Jx"], ["-J=x"], ["--name", "y", "--name", "x"]]
)
def test_a_value_in_every_spelling(words: list[str]) -> None:
    assert parse(VERB, words).text("name") == "x"


def test_switches_may_be_written_together_with_a_value_last() -> None:
    parsed = parse(VERB, ["-afojson", "37"])
    assert parsed.on("all")
    assert parsed.on("follow")
    assert parsed.text("format") == "json"
    assert parsed.positionals == ["37"]


def test_a_repeated_flag_keeps_every_value_where_it_may() -> None:
    assert parse(VERB, ["-e", "A=1", "--env", "B=2=3"]).many("env") == ["A=1", "B=2=3"]


def test_an_empty_value_and_a_negative_one_are_values() -> None:
    assert parse(VERB, ["--name=", "--gpu-memory", "-5"]).values == {"name": [""], "gpu-memory": ["-5"]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpu-memry", "8Gi"], "did you mean --gpu-memory?"),
        (["--gpus", "1"], "use --shares N"),
        (["--name"], "--name needs a value: --name NAME"),
        (["--name", "--", "true"], "--name needs a value"),
        (["--name", "--all"], "--name needs a value"),
        (["--follow=yes"], "is a switch"),
        (["-o", "jsn"], "did you mean json?"),
        (["-fz"], "-fz is not a flag here"),
    ],
)
def test_a_mistake_is_answered_with_what_would_work(words: list[str], said: str) -> None:
    with pytest.raises(Usage) as caught:
        parse(VERB, words)
    assert said in str(caught.value)


def test_positionals_are_counted() -> None:
    one = Verb(usage="show ID", positionals=(1, 1), what="job id")
    with pytest.raises(Usage, match="needs a job id: tenure show ID"):
        parse(one, [])
    with pytest.raises(Usage, match="'38' is one job id too many"):
        parse(one, ["37", "38"])
    assert parse(one, ["--help"]).on("help")


def test_a_script_keeps_the_flags_that_follow_it_and_a_job_file_does_not() -> None:
    verb = Verb(usage="submit", options=VERB.options, positionals=(0, None), stops=True, stops_unless=(".yaml",))
    assert parse(verb, ["-f", "x.sh", "--name", "a", "-q"]).positionals == ["x.sh", "--name", "a", "-q"]
    assert parse(verb, ["x.yaml", "--name", "a"]).text("name") == "a"
