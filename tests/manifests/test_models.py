"""Model documents: every field, its default, and what is refused in the words of the other kinds."""

from __future__ import annotations

import json

import pytest

from tenure.domain.errors import InvalidManifest
from tenure.domain.model import INFERENCE_PATHS, Model
from tenure.manifests.dump_models import dump_models
from tenure.manifests.models import SPEC, model_schema
from tenure.manifests.policy import PolicyReading, read_policy

WHOLE = """\
apiVersion: tenure.dev/v1
kind: Model
metadata: {name: assistant}
spec:
  command: [llama-server, --port, "{port}", -m, assistant.gguf]
  aliases: [default]
  adapters: [{name: assistant-sql}]
  queueName: large-model
  priorityClassName: on-demand
  shares: 1
  gpuMemory: 8Gi
  idleAfter: 2h
  startTimeout: 90s
  stopTimeout: 10s
  readyPath: /ready
  inferencePaths: [/v1/rerank]
  keepCaches: false
  env: {HF_HUB_OFFLINE: "1"}
  workingDir: /srv/models
"""
LEAST = """\
apiVersion: tenure.dev/v1
kind: Model
metadata: {name: small}
spec: {command: [serve, "{port}"]}
"""


def read(*texts: str) -> PolicyReading:
    return read_policy([(f"{i}.yaml", text) for i, text in enumerate(texts)])


def refusals(*texts: str) -> list[str]:
    with pytest.raises(InvalidManifest) as caught:
        read(*texts)
    return [str(problem) for problem in caught.value.problems if problem.severity == "error"]


def test_every_field_is_read() -> None:
    assert read(WHOLE).models["assistant"] == Model(
        name="assistant",
        command=("llama-server", "--port", "{port}", "-m", "assistant.gguf"),
        aliases=("default",),
        adapters=("assistant-sql",),
        queue="large-model",
        priority_class="on-demand",
        shares=1,
        gpu_memory=8 * 2**30,
        idle_after_s=7200,
        start_timeout_s=90,
        stop_timeout_s=10,
        ready_path="/ready",
        inference_paths=("/v1/rerank",),
        keep_caches=False,
        env={"HF_HUB_OFFLINE": "1"},
        workdir="/srv/models",
    )


def test_the_defaults_are_those_of_the_schema() -> None:
    model = read(LEAST).models["small"]
    said = {name: field.get("default") for name, field in schema()["properties"].items()}
    assert (model.idle_after_s, said["idleAfter"]) == (3600, "1h")
    assert (model.start_timeout_s, said["startTimeout"]) == (300, "5m")
    assert (model.stop_timeout_s, said["stopTimeout"]) == (30, "30s")
    assert model.ready_path == said["readyPath"]
    assert list(model.inference_paths) == said["inferencePaths"] == list(INFERENCE_PATHS)
    assert model.keep_caches is said["keepCaches"] is True
    assert model.resident is said["resident"] is False
    assert model.shares == said["shares"] == model.gpu_memory == said["gpuMemory"] == 0


def test_the_schema_knows_the_fields_that_are_read() -> None:
    assert set(schema()["properties"]) == set(SPEC.fields)
    assert schema()["required"] == [name for name, field in SPEC.fields.items() if field.required]


def schema() -> dict[str, dict[str, dict[str, object]]]:
    spec: dict[str, dict[str, dict[str, object]]] = json.loads(model_schema())["properties"]["spec"]
    return spec


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("idleAfter", "idleafter", '0.yaml:12 (document 1): spec.idleafter: unknown field "idleafter"; did you mean "idleAfter"?'),
        ("2h", "2 parsecs", "spec.idleAfter: '2 parsecs' is not a duration"),
        ("2h", "0s", "spec.idleAfter: 0s is too short"),
        ("2h", "120", "spec.idleAfter: expected a duration such as 30s, 5m or 1h, got the number 120"),
        ('"{port}"', '"8080"', "spec.command: does not say {port}"),
        ("  gpuMemory: 8Gi\n", "", "spec.gpuMemory: is required where shares are asked for"),
        ("  shares: 1\n", "", "spec.shares: is required where gpuMemory is asked for"),
        ("/ready", "ready", "spec.readyPath: "),
        ("[default]", "[default, default]", "spec.aliases[1]: default stands here twice"),
        ("[default]", "[assistant]", 'spec.aliases[0]: "assistant" already leads to the model "assistant"'),
        ("[default]", "[assistant-sql]", 'spec.adapters[0]: "assistant-sql" stands here twice'),
        ("/srv/models", "models", "spec.workingDir: "),
        ("tenure.dev/v1", "tenure.dev/v2", 'apiVersion: "tenure.dev/v2" is not read for Model; tenure.dev/v1 would work'),
        ("kind: Model", "kind: Modle", 'kind: unknown kind "Modle"; did you mean "Model"?'),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(was: str, now: str, said: str) -> None:
    assert was in WHOLE
    assert any(said in line for line in refusals(WHOLE.replace(was, now))), refusals(WHOLE.replace(was, now))


def test_a_name_leads_to_one_model() -> None:
    other = LEAST.replace('"{port}"]', '"{port}"], aliases: [assistant-sql]').replace("small", "other")
    assert [line.partition(": ")[2] for line in refusals(WHOLE, other)] == [
        'spec.aliases[0]: "assistant-sql" already leads to the model "assistant"; a name leads to one model'
    ]


@pytest.mark.parametrize(
    ("text", "field", "word"),
    [
        (WHOLE.replace("[default]", "[default, other]"), "spec.aliases[1]", "other"),
        (WHOLE.replace("assistant-sql", "other"), "spec.adapters[0]", "other"),
        (WHOLE.replace("[{name: assistant-sql}]", "\n  - name: assistant-sql\n  - name: other"), "spec.adapters[1]", "other"),
        (WHOLE.replace("[default]", "\n  - default\n  - other"), "spec.aliases[1]", "- other"),
        (WHOLE, "spec.queueName", "large-model"),
        (WHOLE, "spec.priorityClassName", "on-demand"),
    ],
)  # fmt: skip
def test_what_only_all_documents_together_show_is_named_with_its_own_line(text: str, field: str, word: str) -> None:
    file = LEAST.replace("small", "other") + "---\n" + text
    try:
        problems = list(read(file).problems)
    except InvalidManifest as refused:
        problems = list(refused.problems)
    (line,) = {problem.line for problem in problems if problem.field == field and problem.document == 2}
    assert line is not None
    assert word in file.splitlines()[line - 1]


def test_a_name_that_leads_nowhere_is_answered_with_those_that_would() -> None:
    queue = "apiVersion: v1\nkind: LocalQueue\nmetadata: {name: %s}\nspec: {clusterQueue: q}\n"
    queue = queue.replace("v1", "kueue.x-k8s.io/v1beta2", 1)
    near = [p.message for p in read(WHOLE, queue % "large-modle").problems]
    assert any(text.endswith('; did you mean "large-modle"?') for text in near), near
    far = [p.message for p in read(WHOLE, queue % "zoo").problems]
    assert any(text.endswith("; known here: zoo") for text in far), far


def test_a_queue_that_is_not_there_is_a_warning() -> None:
    told = [p.message for p in read(WHOLE).problems]
    assert any('there is no LocalQueue "large-model": it cannot wake until it exists' in text for text in told)


def test_what_is_written_reads_back_as_the_same_models() -> None:
    strange = """\
apiVersion: tenure.dev/v1
kind: Model
metadata: {name: "1e3", namespace: research}
spec: {command: ["yes", "{port}", "0o17", "# no"], idleAfter: 500ms, env: {A: "on", B: "12:30"}, resident: false}
"""
    models = read(WHOLE, LEAST, strange).models
    text = dump_models(models.values())
    assert read(text).models == models
    assert text.count("kind: Model") == 3
    assert "startTimeout: 90s" in text
    assert dump_models([]) == ""
