"""Which reader a submitted file belongs to; and that no file, whatever is in it, does more than be refused."""

from __future__ import annotations

import contextlib
from datetime import UTC

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tenure.domain.errors import InvalidManifest, InvalidRequest
from tenure.domain.ids import Instant
from tenure.manifests.policy import read_policy
from tenure.manifests.rules import check_spec
from tenure.manifests.sbatch_values import Export
from tenure.manifests.submission import read_bytes, read_file, read_submission
from tenure.manifests.wire import spec_from_json

from .test_jobs import JOB, job

NOW = Instant(1_795_000_000_000_000)


def test_the_kind_is_told_from_the_text():
    assert read_submission("x.yaml", job(), NOW).kind == "job"
    assert read_submission("x", job(), NOW).kind == "job"
    assert read_submission("x.sh", "#!/bin/sh\n#SBATCH -J a\n", NOW).kind == "sbatch"
    assert read_submission("x", "#!/bin/sh\n#TENURE --shares 1\n", NOW).kind == "sbatch"
    assert read_submission("dir/x.sh", "#!/bin/sh\ntrue\n", NOW).kind == "script"


def test_a_plain_script_runs_as_text_under_its_files_name():
    (spec,) = read_file("dir/x.sh", "#!/bin/sh\ntrue\n", NOW)
    assert (spec.name, spec.script, spec.sbatch) == ("x.sh", "#!/bin/sh\ntrue\n", False)


def test_an_environment_that_is_not_narrowed_is_named():
    text = "#!/bin/sh\n#SBATCH --export=NONE\n"
    assert "--export=NONE" in read_file("x", text, NOW)[0].notes[0]
    submission = read_submission("x", text, NOW)
    assert submission.specs[0].notes == ()
    assert submission.export == Export(all=False)


def test_json_jobs_are_read():
    text = (
        '{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j"},'
        '"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"command":["x"]}]}}}}'
    )
    assert read_file("job", text, NOW)[0].argv == ("x",)


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("x", "hello", "a batch/v1 Job (YAML or JSON), a script with #SBATCH lines and a plain script"),
        ("x.sh", "echo hello\n", "write #!/bin/bash"),
        ("x", "", "empty"),
        ("x.sh", "#!/bin/sh\r\ntrue\r\n", "dos2unix"),
        ("x.sh", "#!/bin/sh\n\0", "NUL"),
        ("x.yaml", "", "no object"),
        ("x.yaml", "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: a}\n", "not yet read here"),
    ],
)
def test_what_is_no_job_is_refused_with_what_is_read(path: str, text: str, words: str):
    with pytest.raises(InvalidManifest) as caught:
        read_file(path, text, NOW)
    assert words in caught.value.message


def test_bytes_that_are_not_utf8_are_refused():
    with pytest.raises(InvalidManifest, match="not UTF-8"):
        read_bytes("x.sh", b"#!/bin/sh\n\xff", NOW)


# Whatever comes in

WORDS = st.sampled_from(
    ["apiVersion: batch/v1", "kind: Job", "kind: List", "items:", "- ", "metadata:", "  name: a", "spec:", "{", "}", "[", "]", ": ", "&a", "*a", "<<: *a",
     "---", "...", "#!/bin/sh", "#SBATCH", "#TENURE", "-J", "--gres=gpu:", "--mem=", "-a 1-", "%", "'", '"', "\\", "\t", "\n", "\0", "!!int", "1e999999999", "9" * 50, "~", "?", "|"]
)  # fmt: skip
SOUP = st.lists(WORDS | st.text(max_size=6), max_size=25).map("\n".join) | st.lists(WORDS, max_size=25).map(" ".join)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["a", "a.yaml", "a.json", "a.sh", "", "/"]), SOUP)
@example("a", "#!/bin/sh\n#SBATCH --array=1-99999 --array=0-999999999999999999999\n")
@example("a", "#!/bin/sh\n#SBATCH --mem=999999999999999P -b now+999999999weeks\n")
@example("a.yaml", "? {a: b}\n: c\n")
@example("a.yaml", "%YAML 9.9\n---\na: 1\n")
def test_any_text_is_a_job_or_invalid(path: str, text: str):
    with contextlib.suppress(InvalidManifest):
        read_submission(path, text, NOW, UTC)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_job_or_invalid(data: bytes):
    with contextlib.suppress(InvalidManifest):
        read_bytes("x", data, NOW, UTC)


@settings(max_examples=150, deadline=None)
@given(SOUP)
def test_any_text_is_a_policy_or_invalid(text: str):
    with contextlib.suppress(InvalidManifest):
        read_policy([("f", text)])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_job_with_any_line_spoilt_is_a_job_or_invalid(data: st.DataObject):
    """Nearly right is where readers fall over: one line is replaced, shifted or cut."""
    lines = JOB.split("\n")
    at = data.draw(st.integers(0, len(lines) - 1))
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    key = lines[at].strip().split(":")[0]
    values = [
        "",
        "null",
        "[]",
        "{}",
        "[[]]",
        "{a: b}",
        "[{}]",
        "[null]",
        "5",
        "-1",
        "x",
        "true",
        "1.5",
        "[5]",
        "{a: {}}",
        "'\\0'",
        '"\\0"',
    ]
    lines[at] = data.draw(
        st.sampled_from([f"{indent}{key}: {v}" for v in values] + ["", indent + "x", lines[at] + ":", " " + lines[at]])
    )
    with contextlib.suppress(InvalidRequest):
        for spec in read_file("j.yaml", "\n".join(lines), NOW):
            check_spec(spec)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            ["name", "argv", "env", "shares", "array", "after", "logs", "policy", "grace_s", "stop_signal", "x"]
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(st.sampled_from(["indices", "job", "a"]), inner, max_size=2)
            ),
            max_leaves=4,
        ),
    )
)
def test_any_json_is_a_job_or_invalid(data: object):
    with contextlib.suppress(InvalidRequest):
        check_spec(spec_from_json(data))
