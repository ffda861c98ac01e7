"""YAML and JSON text as trees that know their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.manifests.documents import Entry, Mapped, Scalar, read_documents
from tenure.manifests.scalars import Text
from tenure.manifests.schema import MapOf
from tenure.manifests.spots import Spot
from tenure.manifests.texts import decode, read_directory


def value(text: str):
    documents, problems = read_documents("f.yaml", f"x: {text}\n")
    assert problems == ()
    scalar = documents[0].root.get("x")
    assert isinstance(scalar, Scalar)
    return scalar.value


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("yes", True), ("Off", False), ("true", True), ("~", None), ("null", None), ("", None),
        ("5", 5), ("-5", -5), ("0x10", 16), ("0o17", 15), ("010", 8), ("1_000", 1000), ("08", 8.0),
        ("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5), ("5Gi", "5Gi"), ("500m", "500m"),
        ("12:30:45", "12:30:45"),  # no sexagesimal numbers, unlike YAML 1.1
        ("2026-12-01", "2026-12-01"),  # no dates
        ('"5"', "5"), ("'yes'", "yes"), ("!!str 5", "5"), ('!!int "5"', 5), ('"\\ud83d\\ude00"', "😀"),
        (".", "."),
    ],
)  # fmt: skip
def test_scalars_mean_what_they_mean_to_kubernetes(text: str, meaning: object):
    assert value(text) == meaning


def test_documents_are_numbered_and_empty_ones_skipped():
    documents, problems = read_documents("f", "---\n# nothing\n---\na: 1\n---\n---\nb: 2\n...\n")
    assert problems == ()
    assert [d.number for d in documents] == [2, 4]
    assert [d.root.line for d in documents] == [4, 7]


def test_a_list_is_opened_and_its_items_know_where_they_stand():
    text = "apiVersion: v1\nkind: List\nitems:\n- kind: A\n- kind: ClusterQueueList\n  items:\n  - kind: B\n"
    documents, _ = read_documents("f", text)
    assert [(d.root.text("kind"), d.path, d.root.line) for d in documents] == [
        ("A", "items[0]", 4),
        ("B", "items[1].items[0]", 7),
    ]


def test_anchors_aliases_and_merge_keys_work():
    documents, problems = read_documents("f", "a: &x {p: 1, q: 2}\nb: *x\nc:\n  <<: *x\n  q: 3\n")
    assert problems == ()
    merged = documents[0].root.get("c")
    assert isinstance(merged, Mapped)
    assert {e.key: e.value.value for e in merged.entries if isinstance(e.value, Scalar)} == {"q": 3, "p": 1}


def bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, '"a" is given twice (first on line 1)'),
        ("a:\n\tb: 1\n", 2, "a tab indents this line"),
        ("a: b: c\n", 1, "goes in quotes"),
        ("a: [1, 2\n", None, "not YAML"),
        ("a: 'x\n", None, "not YAML"),
        ("a: *nobody\n", 1, "undefined alias"),
        ("a: &x\n  b: *x\n", None, "the very thing that contains it"),
        ("x: \x07\n", 1, "U+0007"),
        ("? [1, 2]\n: x\n", 1, "a field's name is text"),
        ("a: !python/object:os.system x\n", 1, "the tag !python/object:os.system"),
        ('a: "\\ud83d"\n', 1, "half a character"),
        ("a: " + "9" * 5000 + "\n", 1, "5000 digits"),
        ("a: " + "[" * 150 + "]" * 150 + "\n", 1, "nested more than"),
        ("a: " + "[" * 1000 + "]" * 1000 + "\n", None, "nested too deep"),
        ("just text\n", 1, "expected an object"),
        (bomb(), None, "when its aliases are written out"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_a_problem_that_names_its_line(text: str, line: int | None, words: str):
    _, problems = read_documents("f.yaml", text)
    assert len(problems) == 1
    assert words in problems[0].message
    assert problems[0].file == "f.yaml"
    if line is not None:
        assert problems[0].line == line


def test_documents_before_a_fault_are_still_read():
    documents, problems = read_documents("f", "a: 1\n---\nb: [\n")
    assert len(documents) == 1
    assert [p.document for p in problems] == [2]


def test_json_may_be_indented_with_tabs():
    documents, problems = read_documents("f.json", '{\n\t"a": "x",\n\t"b": [1]\n}\n')
    assert problems == ()
    assert documents[0].root.text("a") == "x"


def test_bytes_that_are_not_utf8_are_named_by_line_and_offset():
    _, problems = decode("f", b"a: 1\nb: \xff\n")
    assert problems[0].line == 2
    assert "0xff at offset 8" in problems[0].message
    assert decode("f", b"\xef\xbb\xbfa: 1") == ("a: 1", ())


def test_a_directory_is_read_in_the_order_of_its_names(tmp_path: Path):
    for name in ("b.yml", "a.yaml", "c.json", "note.txt", ".hidden.yaml"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "d.yaml").write_bytes(b"\xff")
    (tmp_path / "e.yaml").mkdir()
    files, problems = read_directory(tmp_path)
    assert [Path(name).name for name, _ in files] == ["a.yaml", "b.yml", "c.json"]
    assert [Path(p.file).name for p in problems] == ["d.yaml"]


def test_a_missing_directory_is_a_problem(tmp_path: Path):
    _, problems = read_directory(tmp_path / "nowhere")
    assert "cannot read the directory" in problems[0].message


def test_a_file_that_would_take_minutes_to_read_is_refused_at_once():
    documents, problems = read_documents("f.yaml", "a: 1\n" * 400_000)
    assert not documents
    assert "split it" in problems[0].message


class Compared(str):
    """Text that counts how often it is compared."""

    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str(self) == other

    __hash__ = str.__hash__


def test_a_mapping_of_many_fields_is_walked_once():
    """The place of each was looked for from the first on: twenty thousand annotations took twenty seconds."""
    root = Mapped(1, tuple(Entry(Compared(f"a{i}"), i, Scalar(i, "b", "b")) for i in range(10_000)))
    pairs = MapOf(value_of=lambda _: Text()).read(root, Spot([], "f", 1, 1, "", root))
    assert pairs is not None
    assert len(pairs) == 10_000
    assert Compared.times < 10 * 10_000
