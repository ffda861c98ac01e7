"""The program's manners before it meets a platform: help, mistakes, exit codes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tenure.cli import manual
from tenure.cli.main import module_of
from tenure.cli.verbs import VERBS

from .conftest import TENURE, Home


def test_help_names_every_verb(nowhere: Home) -> None:
    said = nowhere.ok("--help")
    assert all(f"  {name} " in said for name in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_help_names_every_flag_once(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    manual.of_verb(verb, module_of(verb).VERB)
    words = capsys.readouterr().out.partition("\nFlags\n")[2].partition("\nExamples\n")[0]
    named = [line.split()[0].rstrip(",") for line in words.splitlines() if line.startswith("  -")]
    assert named == list(dict.fromkeys(named))
    assert "-o" in named


@pytest.mark.parametrize("words", [("submit", "--help"), ("help", "submit"), ("batch", "-h")])
def test_help_of_a_verb_by_any_road(nowhere: Home, words: tuple[str, ...]) -> None:
    assert "--gpu-memory AMOUNT" in nowhere.ok(*words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cancle", "3"], "did you mean cancel?"),
        (["submit", "--gpu-memry", "8Gi", "--", "true"], "did you mean --gpu-memory?"),
        (["submit", "--"], "needs a command after `--`"),
        (["submit", "python", "x.py"], "there is no file 'python' here; a command goes after `--`"),
        (["submit", "--requeue", "--no-requeue", "--", "true"], "exclude each other"),
        (["submit", "--env", "=1", "--", "true"], "write K=V"),
        (["submit", "--shares", "two", "--", "true"], "--shares takes a whole number"),
        (["show"], "needs a job id"),
        (["gateway"], "needs an argument: tenure gateway url"),
        (["wait", "1", "--timeout", "soon"], "is not a duration"),
        (["completion", "powershell"], "there is bash, zsh, fish"),
        (["policy", "chekc"], "did you mean check?"),
        (["runs", "diff", "1.1"], "takes 2 runs, not 1"),
    ],
)
def test_a_mistake_exits_with_2_and_says_what_would_work(nowhere: Home, words: list[str], said: str) -> None:
    answer = nowhere.tenure(*words)
    assert answer.code == 2
    assert said in answer.err
    assert answer.out == ""


@pytest.mark.parametrize(
    "words",
    [
        ("ps",),
        ("show", "1"),
        ("submit", "--", "true"),
        ("run", "--", "true"),
        ("cancel", "1"),
        ("wait", "1"),
        ("logs", "1"),
    ],
)
def test_no_platform_exits_with_69_and_says_how_to_start_one(nowhere: Home, words: tuple[str, ...]) -> None:
    answer = nowhere.tenure(*words)
    assert (answer.code, answer.out) == (69, "")
    assert "start it with `tenure up -d`" in answer.err
    assert not nowhere.path.exists()


def test_a_program_that_is_not_there_ends_run_before_anything_is_asked(nowhere: Home, tmp_path: Path) -> None:
    answer = nowhere.tenure("run", "--", "no-such-program")
    assert (answer.code, "no-such-program: command not found" in answer.err) == (127, True)
    (tmp_path / "data").write_text("")
    answer = nowhere.tenure("run", "--", "./data", cwd=tmp_path)
    assert (answer.code, "not executable" in answer.err) == (126, True)


def test_dry_run_needs_no_platform_and_tells_no_secret(nowhere: Home) -> None:
    said = nowhere.json(
        "submit", "--dry-run", "--name", "训练", "--shares", "2", "--gpu-memory", "8Gi", "--", "echo", "a b"
    )
    assert said["argv"] == ["echo", "a b"]
    assert (said["name"], said["shares"], said["gpu_memory"]) == ("训练", 2, "8Gi")
    assert "variables of yours" in said["environment"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("train.py", "print(1)\n", "tenure submit -- python train.py"),
        ("prog", b"\x7fELF\x80", "is not text"),
        ("job.yaml", "kind: Job\n", "takes no arguments"),
    ],
)
def test_a_file_that_is_no_script_is_refused_with_the_way_to_run_it(
    nowhere: Home, tmp_path: Path, name: str, text: str | bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    extra = ["more"] if name.endswith(".yaml") else []
    answer = nowhere.tenure("submit", name, *extra, cwd=tmp_path)
    assert answer.code == 2
    assert said in answer.err


def test_a_flag_after_a_script_is_the_scripts_and_is_pointed_out(nowhere: Home, tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_text("#!/bin/sh\n")
    answer = nowhere.tenure("submit", "--dry-run", "x.sh", "--name", "y", cwd=tmp_path)
    assert '"script_args": [\n    "--name",\n    "y"\n  ]' in answer.out
    assert "--name stands after x.sh, so it goes to the script" in answer.err


def test_words_that_are_no_text_are_refused(nowhere: Home) -> None:
    answer = nowhere.tenure("submit", "--", "echo", b"\xff".decode("utf-8", "surrogateescape"))
    assert (answer.code, "is not text in UTF-8" in answer.err) == (2, True)


def test_a_directory_that_is_not_there_is_refused(nowhere: Home, tmp_path: Path) -> None:
    answer = nowhere.tenure("submit", "--workdir", "/no/such/place", "--", "true")
    assert (answer.code, "no such directory" in answer.err) == (2, True)
    gone = tmp_path / "gone"
    gone.mkdir()
    answer = nowhere.tenure("submit", "-C", ".", "--dry-run", "--", "true", cwd=gone)
    assert f'"workdir": "{gone}"' in answer.out
    script = f"cd '{gone}' && rmdir '{gone}' && exec '{TENURE}' submit -- true"
    done = subprocess.run(["sh", "-c", script], env=nowhere.env, capture_output=True, text=True, check=False)
    assert (done.returncode, "has been removed" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("bom.sbatch", b"\xef\xbb\xbf#!/bin/bash\n#SBATCH -J x\n", "begins with a byte order mark"),
        ("latin.sh", b"#!/bin/sh\n# caf\xe9\n", "is not text in UTF-8; to run a program, put it after `--`"),
        ("plain.sh", b"echo\n", "what runs it, such as #!/bin/bash; to run a program"),
        ("x.py", b"print()\n", "tenure submit -- python /"),
        ("empty.sh", b"", "is neither a Job (.yaml) nor a script"),
    ],
)
def test_a_file_that_is_no_submission_is_told_what_it_is_and_how_it_would_run(
    nowhere: Home, tmp_path: Path, name: str, data: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(data)
    answer = nowhere.tenure("submit", str(tmp_path / name))
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert "-- .//" not in answer.err


def test_stdin_is_no_program_to_be_run_instead(nowhere: Home) -> None:
    answer = nowhere.tenure("submit", "-", stdin=b"echo x\n")
    assert answer.code == 2
    assert "submit --" not in answer.err
