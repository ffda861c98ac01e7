"""`#SBATCH` scripts: what is understood, what is named, what is refused, each with its line."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.domain.errors import InvalidManifest
from tenure.domain.ids import Instant
from tenure.domain.job import ArraySpec, Dependency, DependencyKind, JobSpec, LogSpec, StopSignal
from tenure.manifests.sbatch import SbatchReading, read_sbatch
from tenure.manifests.sbatch_options import OPTIONS, TENURE_OPTIONS
from tenure.manifests.sbatch_values import Export

NOW = Instant(int(datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()) * 1_000_000)
GIB = 2**30


def script(*lines: str, body: str = "srun hostname\n") -> str:
    return "#!/bin/bash\n" + "".join(f"#SBATCH {line}\n" for line in lines) + body


def reading(*lines: str) -> SbatchReading:
    return read_sbatch("dir/train.sbatch", script(*lines), NOW, UTC)


def spec(*lines: str) -> JobSpec:
    return reading(*lines).spec


def refused(*lines: str) -> list[tuple[int | None, str, str]]:
    with pytest.raises(InvalidManifest) as caught:
        reading(*lines)
    return [(p.line, p.field, p.message) for p in caught.value.problems]


def test_a_script_with_everything():
    text = script(
        "--job-name=resnet -t 1-00:00:00",
        "--nodes=1 --ntasks=4 --cpus-per-task 2",
        "--mem=16G",
        "--gres=gpu:2,gpu-memory:8G",
        "-p general",
        "--qos=training",
        "-a 1-10%3",
        "-d afterok:37:38_2,afterany:40",
        '-o "out %x-%j.txt" -e err-%A_%a.txt # both named',
        "--open-mode=append",
        "--no-requeue",
        "--export=ALL,LR=0.1",
        "-D /data",
        "--signal=B:USR1@120",
        "--begin=now+1hour",
        "--comment='a comment' -A lab",
    )
    read = read_sbatch("dir/train.sbatch", text, NOW, UTC)
    assert read.spec == JobSpec(
        name="resnet",
        script=text,
        sbatch=True,
        time_limit_s=86_400.0,
        tasks=4,
        cpus=8000,
        memory=16 * GIB,
        shares=2,
        gpu_memory=8 * GIB,
        queue="general",
        priority_class="training",
        array=ArraySpec(indices=tuple(range(1, 11)), limit=3),
        after=(
            Dependency(job="37"),
            Dependency(job="38_2"),
            Dependency(job="40", kind=DependencyKind.AFTER_ANY),
        ),
        logs=LogSpec(output="out %x-%j.txt", error="err-%A_%a.txt", append=True),
        requeue=False,
        env={"LR": "0.1"},
        workdir="/data",
        stop_signal=StopSignal(signal="USR1", before_s=120.0, batch_only=True),
        begin_at=Instant(NOW + 3_600_000_000),
        labels={"comment": "a comment", "account": "lab"},
    )
    assert read.export == Export(all=True)
    assert read.understood["time"] == "1-00:00:00"
    assert read.understood["array"] == "1-10%3"


def test_a_script_with_nothing_is_named_after_its_file():
    assert spec() == JobSpec(name="train.sbatch", script=script(), sbatch=True)


def test_only_lines_before_the_first_command_count():
    text = "#!/bin/bash\n\n# a comment\n#SBATCH -J one\n   \nset -e\n#SBATCH -J two\n"
    read = read_sbatch("s", text, NOW).spec
    assert read.name == "one"
    assert read.notes == ("line 7: comes after the first command and is not read, as in Slurm",)


@pytest.mark.parametrize("line", ["##SBATCH -J x", " #SBATCH -J x", "# SBATCH -J x", "#SBATCHES -J x", "#sbatch -J x"])
def test_what_only_looks_like_a_directive_is_a_comment(line: str):
    assert read_sbatch("s", f"#!/bin/sh\n{line}\ntrue\n", NOW).spec.name == "s"


def test_the_last_of_two_wins():
    assert spec("-J a", "-J b").name == "b"


def test_a_backslash_joins_the_next_directive_line():
    assert spec("-J a \\", "-t 5").time_limit_s == 300.0
    assert [(line, "continues to no directive" in message) for line, _, message in refused("-J a \\")] == [(2, True)]


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("-n4", "tasks", 4),
        ("-n 4", "tasks", 4),
        ("--ntasks 4", "tasks", 4),
        ("--ntasks-per-node=3", "tasks", 3),
        ("--ntasks=4 --ntasks-per-node=9", "tasks", 4),
        ("--part=x", "queue", "x"),
        ("-c 3", "cpus", 3000),
        ("-n 2 -c 3", "cpus", 6000),
        ("--cpus-per-gpu=4 --gpus=2", "cpus", 8000),
        ("--mem=512", "memory", 512 * 2**20),
        ("--mem=2gb", "memory", 2 * GIB),
        ("--mem-per-cpu=1G -n 4 -c 2", "memory", 8 * GIB),
        ("--mem-per-gpu=1G -G 2", "memory", 2 * GIB),
        ("--gres=gpu", "shares", 1),
        ("--gres=gpu:3", "shares", 3),
        ("--gres=gpu:a100:3", "shares", 3),
        ("--gres=gpu:a100", "shares", 1),
        ("--gres=shard:2", "shares", 2),
        ("--gres=gpu:a100:1,gpu:v100:2", "shares", 3),
        ("--gres=gpu:1,gpu:1", "shares", 2),
        ("--gres=NONE", "shares", 0),
        ("-G a100", "shares", 1),
        ("--gpus=4 --gpus-per-task=2", "tasks", 2),
        ("--gpus=4 --gpus-per-task=2", "shares", 4),
        ("-a [1-5]%2", "array", ArraySpec(indices=(1, 2, 3, 4, 5), limit=2)),
        ("--signal=b:usr1@120", "stop_signal", StopSignal(signal="USR1", before_s=120.0, batch_only=True)),
        ("-d 3,4_1", "after", tuple(Dependency(job=j, kind=DependencyKind.AFTER_ANY) for j in ("3", "4_1"))),
        ("-d AfterOK:3:4_*", "after", (Dependency(job="3"), Dependency(job="4"))),
        ("--gres=gpu:1 --gres=shard:2", "shares", 2),
        ("--gres=none", "shares", 0),
        ("--gpus=2", "shares", 2),
        ("-G a100:2,h100:1", "shares", 3),
        ("--gpus-per-task=2 -n 3", "shares", 6),
        ("--gpus=2 --gres=gpu:2", "shares", 2),
        ("--gpus-per-node=2", "shares", 2),
        ("-N 1-4", "processes", 1),
        ("-t UNLIMITED", "time_limit_s", None),
        ("-H", "suspended", True),
        ("-QH", "suspended", True),
        ("--requeue", "requeue", True),
        ("-b 18:00", "begin_at", Instant(NOW + 6 * 3_600_000_000)),
        ("--signal=10@5", "stop_signal", StopSignal(signal="USR1", before_s=5.0)),
        ("--signal=SIGTERM", "stop_signal", StopSignal(signal="TERM", before_s=60.0)),
        ("-d after:3", "after", (Dependency(job="3", kind=DependencyKind.AFTER),)),
        ("-d afternotok:3", "after", (Dependency(job="3", kind=DependencyKind.AFTER_NOT_OK),)),
        ("-J '训练 \"x\"'", "name", '训练 "x"'),
    ],
)
def test_options(line: str, field: str, value: object):
    assert getattr(spec(line), field) == value


@pytest.mark.parametrize(
    ("line", "export", "env"),
    [
        ("ALL", Export(), {}),
        ("NONE", Export(all=False), {}),
        ("A,B", Export(all=False, names=("A", "B")), {}),
        ("A=1,B", Export(all=False, names=("B",)), {"A": "1"}),
        ("ALL,A=1=2", Export(), {"A": "1=2"}),
        ("A=", Export(all=False), {"A": ""}),
        ("A=1,,B,", Export(all=False, names=("B",)), {"A": "1"}),
        ("\"ALL,A='1,2',B=3\"", Export(), {"A": "'1,2'", "B": "3"}),
        ("\"ALL,'A=1,2',B=3\"", Export(), {"A": "1,2", "B": "3"}),
        ('"A=it\'s,B=2"', Export(all=False), {"A": "it's", "B": "2"}),
    ],
)
def test_export(line: str, export: Export, env: dict[str, str]):
    read = reading(f"--export={line}")
    assert read.export == export
    assert read.spec.env == env


def test_our_own_directive_line():
    text = "#!/bin/sh\n#SBATCH -G 1\n#TENURE --gpu-memory 8Gi --project=vision --grace 2m\n#TENURE --queue general --priority batch\n"
    read = read_sbatch("s", text, NOW).spec
    assert (read.gpu_memory, read.project, read.grace_s) == (8 * GIB, "vision", 120.0)
    assert (read.queue, read.priority_class) == ("general", "batch")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--mail-type=END", "line 2: --mail-type=END has no effect here: no mail"),
        ("--mail-user=a@b.c", "--mail-user"),
        ("--exclusive", "--exclusive has no effect"),
        ("--exclusive=user", "--exclusive=user has no effect"),
        ("-C h100", "--constraint=h100 has no effect"),
        ("--nodelist=n1", "there is one node"),
        ("--prtition=x", 'line 2: --prtition is not an option that is known here; did you mean "partition"?'),
        ("--frobnicate 5", "line 2: --frobnicate is not an option"),
        ("-Y", "line 2: -Y is not an option"),
        ("--gres=gpu:a100:2", "the type a100 has no effect"),
        ("--gres=fpga:2", "fpga:2 is not a resource"),
        ("-d singleton", "singleton is not understood"),
        ("--mem=0", "--mem=0 asks for all"),
        ("--signal=R:USR1", "R has no effect"),
    ],
)
def test_what_has_no_effect_is_named_with_its_line(line: str, words: str):
    notes = spec(line).notes
    assert len(notes) == 1
    assert words in notes[0]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-N 2", "2 nodes do not work on one machine"),
        ("-N x", "whole number"),
        ("-N 1-0", "at least 1"),
        ("-n 0", "at least 1"),
        ("-c two", "whole number"),
        ("-t 1:2:3:4", "D-HH:MM:SS"),
        ("-t 2h", "D-HH:MM:SS"),
        ("--mem=lots", "such as 16G"),
        ("--mem=1G --mem-per-cpu=1G", "exclude each other"),
        ("--gpus=2 --gres=gpu:1", "different numbers of shares"),
        ("--gres=gpu:a:b:c", "gpu:1,gpu-memory:8G"),
        ("--gres=gpu-memory:x", "such as 16G"),
        ("--gpus=2x", "whole number"),
        ("-p a,b", "one partition"),
        ("-a 3-1", "lower index first"),
        ("-d afterok:x", "not a job's id"),
        ("-d after:3+5", "delay"),
        ("-d aftercorr:3", "afterok:ID"),
        ("-d afterok:1?afterok:2", "alternatives"),
        ("--open-mode=x", "append or truncate"),
        ("--export=,", "ALL, NONE"),
        ("--signal=NOPE", "B:USR1@120"),
        ("--signal=USR1@99999", "B:USR1@120"),
        ("-b soon", "now+1hour"),
        ("-J", "needs a value"),
        ("--job-name=", "is empty"),
        ("--requeue=yes", "takes no value"),
        ("-J 'x", "check the quotes"),
        ("hetjob", "heterogeneous"),
        ("train.py", "is not an option"),
        ("-b now+1 hour", "goes in quotes"),
        ("--exclusive user", "goes in quotes"),
        ("--gres=gpu=1", "gpu:1,gpu-memory:8G"),
        ("--gres=gpu/a100:1", "gpu:1,gpu-memory:8G"),
        ("--gres=gpu:-1", "whole number"),
        ("--gpus=5 --gpus-per-task=2", "different numbers of shares"),
        ("-o ''", "is empty"),
    ],
)
def test_malformed_values_are_refused_with_their_line(line: str, words: str):
    found = refused("-v", line)
    assert len(found) == 1
    assert found[0][0] == 3
    assert words in found[0][2]


def test_our_own_directive_is_strict():
    with pytest.raises(InvalidManifest) as caught:
        read_sbatch(
            "s", "#!/bin/sh\n#TENURE --gpu-memry 8Gi\n#TENURE --gpu-memory lots\n#TENURE x\n#TENURE --grace 0\n", NOW
        )
    assert [p.line for p in caught.value.problems] == [2, 3, 4, 5]
    assert 'did you mean "gpu-memory"?' in caught.value.problems[0].message


def test_a_contradiction_with_a_malformed_value_is_two_problems():
    text = "#!/bin/sh\n#TENURE --shares 2\n#SBATCH --gres=gpu:1,gpu-memory:x\n"
    with pytest.raises(InvalidManifest) as caught:
        read_sbatch("s", text, NOW)
    assert [p.line for p in caught.value.problems] == [3, 3]


def test_all_problems_come_out_together():
    assert [line for line, _, _ in refused("-n x", "-J fine", "-t y")] == [2, 4]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "empty"),
        ("#SBATCH -J x\ntrue\n", 1, "#!/bin/bash"),
        ("#!/bin/bash\n#SBATCH -J x\r\ntrue\r\n", 2, "dos2unix"),
        ("#!/bin/bash\n#SBATCH -J x\ntrue \0\n", 3, "NUL"),
    ],
)
def test_what_sbatch_refuses_of_a_script(text: str, line: int, words: str):
    with pytest.raises(InvalidManifest) as caught:
        read_sbatch("s", text, NOW)
    assert [(p.line, words in p.message) for p in caught.value.problems] == [(line, True)]


OPTION_LINES = st.lists(
    st.tuples(
        st.sampled_from(["SBATCH", "TENURE"]),
        st.sampled_from(
            [f"--{name}" for name in (*OPTIONS, *TENURE_OPTIONS)] + ["-n", "-c", "-G", "-t", "-H", "-a", "-d"]
        ),
        st.sampled_from(
            [
                "",
                "=1",
                "=0",
                " 2",
                "=x",
                "=gpu:1,gpu-memory:x",
                "=gpu:1,gpu-memory:8G",
                "=a:1",
                "=8Gi",
                "=1-2",
                "=,",
                "=now",
                "=:",
                "=afterok:1",
                "=B:USR1",
                "=A=1,B",
            ]
        ),
    ),
    max_size=6,
)


@settings(max_examples=200, deadline=None)
@given(OPTION_LINES)
def test_any_options_together_are_a_job_or_invalid(lines: list[tuple[str, str, str]]):
    text = "#!/bin/sh\n" + "".join(f"#{kind} {name}{value}\n" for kind, name, value in lines)
    with contextlib.suppress(InvalidManifest):
        read = read_sbatch("s", text, NOW, UTC).spec
        told = " ".join(read.notes)
        for kind, name, _ in lines:  # nothing is dropped in silence
            if kind == "SBATCH" and name.startswith("--") and OPTIONS.get(name[2:], OPTIONS["job-name"]).note:
                assert name in told
