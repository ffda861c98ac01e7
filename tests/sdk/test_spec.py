"""The command line that a typed spec makes: types, defaults, files, and errors that say what would work."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, NoReturn, Optional

import pytest

import tenure
from tenure.sdk.program import Study
from tenure.sdk.record import read_record
from tenure.sdk.spec import SpecError


class Mode(enum.Enum):
    FAST = "fast"
    EXACT = "exact"


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    rate: float = 0.1
    betas: tuple[float, float] = (0.9, 0.99)


@dataclass(frozen=True, kw_only=True)
class Spec:
    data: Path
    epochs: Annotated[int, "passes over the data, 100% of it"] = 5
    batch_size: int = field(default=32, metadata={"help": "images per step"})
    layers: list[int] = field(default_factory=lambda: [64, 32])
    mode: Mode = Mode.FAST
    norm: Literal["batch", "layer", 3] = "batch"
    shuffle: bool = True
    limit: int | None = None
    old_style: Optional[str] = None  # noqa: UP045  (people write it)
    weights: Mapping[str, float] = field(default_factory=dict)
    optimizer: Optimizer = Optimizer()

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"epochs: {self.epochs} is less than 1")


@tenure.study
def fit(run: tenure.Run, spec: Spec) -> Spec:
    """Fit a model.

    More about it."""
    return spec


@tenure.study(name="plain")
def loose(lr: float = 0.1, tags: list[str] = ["a"], *, seed=7, run) -> tuple[object, ...]:  # type: ignore[no-untyped-def]  # noqa: B006
    return lr, tags, seed, run is tenure.current_run()


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TENURE_RUN_DIR", "TENURE_HOME", "TENURE_RUN_OWNER"):
        monkeypatch.delenv(name, raising=False)


def read(study: Study[object], *words: str) -> object:
    return study._read(words)[0]


def refused(capsys: pytest.CaptureFixture[str], study: Study[object], *words: str) -> str:
    with pytest.raises(SystemExit) as left:
        study.main(words)
    assert left.value.code == 2
    assert not Path("runs").exists()  # a usage error is no run
    return capsys.readouterr().err.splitlines()[-1]


def test_defaults_and_every_type() -> None:
    assert read(fit, "--data", "x") == Spec(data=Path("x"))
    words = [
        "--data",
        "/d",
        "--epochs",
        "3",
        "--batch-size",
        "8",
        "--layers",
        "1",
        "2",
        "3",
        "--mode",
        "exact",
        "--norm",
        "3",
        "--no-shuffle",
        "--limit",
        "9",
        "--old-style",
        "y",
        "--weights",
        '{"a":2}',
        "--optimizer.rate",
        "1e-3",
        "--optimizer.betas",
        "0.5",
        "0.6",
    ]
    assert read(fit, *words) == Spec(
        data=Path("/d"), epochs=3, batch_size=8, layers=[1, 2, 3], mode=Mode.EXACT, norm=3, shuffle=False, limit=9,
        old_style="y", weights={"a": 2.0}, optimizer=Optimizer(rate=0.001, betas=(0.5, 0.6)),
    )  # fmt: skip
    assert read(fit, "--data", "x", "--limit", "none", "--batch_size", "4") == Spec(data=Path("x"), batch_size=4)


@pytest.mark.parametrize("kind", ["json", "toml"])
def test_a_file_lies_under_the_command_line(tmp_path: Path, kind: str) -> None:
    texts = {
        "json": json.dumps({"data": "d", "epochs": 9, "optimizer": {"rate": 2, "betas": [1, 2]}, "mode": "FAST"}),
        "toml": 'data = "d"\nepochs = 9\nmode = "fast"\n[optimizer]\nrate = 2\nbetas = [1, 2]\n',
    }
    (tmp_path / f"c.{kind}").write_text(texts[kind])
    got = read(fit, "--config", f"c.{kind}", "--epochs", "1", "--optimizer.rate", "3")
    assert got == Spec(data=Path("d"), epochs=1, optimizer=Optimizer(rate=3.0, betas=(1.0, 2.0)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "data is missing, and has no default"),
        ("--data x --epochs 2.5", "--epochs: '2.5' is not a whole number"),
        ("--data x --epochs 0", "epochs: 0 is less than 1"),
        ("--data x --optimizer.rate fast", "--optimizer.rate: 'fast' is not a number"),
        ("--data x --optimizer.betas 1", "--optimizer.betas: ['1'] is not exactly 2 values"),
        ("--data x --layers 1 b", "--layers[1]: 'b' is not a whole number"),
        ("--data x --mode slow", "--mode: 'slow' is not one of fast, exact"),
        ("--data x --norm none", "--norm: 'none' is not one of batch, layer, 3"),
        ("--data x --weights {", "--weights: '{' is not a JSON object"),
        ("--data x --epoch 3", "--epoch is no parameter of this study; did you mean --epochs?"),
        ("--data x --zzz", "--zzz is no parameter of this study; --help lists what there is"),
        ("--data x --config missing.json", "missing.json: No such file or directory"),
        ("--data x --config c.yaml", "c.yaml: a configuration is a .json or a .toml file"),
    ],
)
def test_what_is_wrong_is_said(capsys: pytest.CaptureFixture[str], words: str, said: str) -> None:
    assert refused(capsys, fit, *words.split()).endswith(said)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"epochs": "3"}, "epochs: '3' is not a whole number"),
        ({"epochs": True}, "epochs: True is not a whole number"),
        ({"epohcs": 3}, "epohcs is no parameter of this study; did you mean 'epochs'?"),
        ({"optimizer": {"rat": 3}}, "optimizer.rat is no parameter of this study; did you mean 'rate'?"),
        ({"optimizer": 3}, "optimizer: 3 is not an object with the fields of Optimizer"),
        ({"layers": "12"}, "layers: '12' is not a list"),
        ({"limit": "x"}, "limit: 'x' is not a whole number"),
        ({"shuffle": 1}, "shuffle: 1 is not true or false"),
        ([1], "c.json: a configuration is an object of parameters, not list"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(capsys: pytest.CaptureFixture[str], config: object, said: str) -> None:
    if isinstance(config, dict):
        config = {"data": "x", **config}
    Path("c.json").write_text(json.dumps(config))
    assert refused(capsys, fit, "--config", "c.json").endswith(said)


def test_help_has_types_defaults_and_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        fit.main(["--help"])
    assert left.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Fit a model. " in text
    assert "More about it" not in text
    assert "--epochs INT passes over the data, 100% of it (default: 5)" in text
    assert "--batch-size INT" in text
    assert "images per step (default: 32)" in text
    assert "--data PATH (required)" in text
    assert "--shuffle, --no-shuffle" in text


def test_called_from_python_it_returns_and_raises() -> None:
    assert fit(Spec(data=Path("x"))) == Spec(data=Path("x"))
    assert fit(data="x", epochs=2) == Spec(data=Path("x"), epochs=2)
    assert loose() == (0.1, ["a"], 7, True)
    assert loose(lr=1, seed=8) == (1.0, ["a"], 8, True)
    with pytest.raises(SpecError, match="did you mean 'seed'"):
        loose(sed=3)
    with pytest.raises(TypeError, match="not both"):
        fit(Spec(data=Path("x")), epochs=3)
    with pytest.raises(TypeError, match="takes Spec, not int"):
        fit(3)


def test_plain_parameters_are_typed_by_their_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert read(loose, "--seed", "9", "--tags", "x", "y") == {"lr": 0.1, "tags": ["x", "y"], "seed": 9}
    assert "not a whole number" in refused(capsys, loose, "--seed", "x")
    with pytest.raises(SystemExit) as left:
        loose.main(["--lr", "3"])
    assert left.value.code == 0
    (run,) = [path for path in Path("runs").iterdir() if path.is_dir()]
    record = read_record(run)
    assert (record.name, record.config) == ("plain", {"lr": 3.0, "tags": ["a"], "seed": 7})


def test_functions_that_no_command_line_could_call_are_refused() -> None:
    def many(*values: int) -> None: ...
    def two(a: Spec, b: Optimizer) -> None: ...
    def mixed(spec: Spec, more: int) -> None: ...

    for function, said in ((many, "have names"), (two, "two dataclasses"), (mixed, "make it a field")):
        with pytest.raises(TypeError, match=said):
            tenure.study(function)


def test_a_study_that_fails_shows_its_traceback_and_exits_one(capsys: pytest.CaptureFixture[str]) -> None:
    @tenure.study
    def breaks() -> NoReturn:
        raise OSError("no such weights")  # an OSError of the study's own is no trouble with the record

    with pytest.raises(SystemExit) as left:
        breaks.main([])
    assert left.value.code == 1
    err = capsys.readouterr().err
    assert "OSError: no such weights" in err
    assert "could not be written" not in err
