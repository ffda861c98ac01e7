"""`batch/v1` Jobs as Kueue's users write them."""

from __future__ import annotations

import pytest

from tenure.domain.errors import InvalidManifest, Problem
from tenure.domain.job import GangPolicy, JobSpec
from tenure.domain.policy import LabelRequirement, Toleration
from tenure.domain.workload import NodeSelectorTerm
from tenure.manifests.job import expand, read_jobs

JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  namespace: team
  labels:
    kueue.x-k8s.io/queue-name: general
    kueue.x-k8s.io/priority-class: training
    tenure.dev/project: vision
spec:
  suspend: true
  parallelism: 3
  completions: 6
  completionMode: Indexed
  backoffLimit: 2
  activeDeadlineSeconds: 3600
  ttlSecondsAfterFinished: 60
  template:
    metadata:
      labels: {app: x}
      annotations: {tenure.dev/gpu-memory: 8Gi}
    spec:
      priorityClassName: ignored-beside-the-label
      restartPolicy: Never
      terminationGracePeriodSeconds: 5
      nodeSelector: {tenure.dev/card: nvidia-h200}
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions:
              - {key: zone, operator: In, values: [a, b]}
      tolerations:
      - {key: spot, operator: Exists, effect: NoSchedule}
      containers:
      - name: main
        image: pytorch:2
        command: ["python", "train.py"]
        args: ["--lr=$(LR)", "$(NOBODY)", "$$(LR)"]
        workingDir: /data
        env:
        - {name: LR, value: "0.1"}
        - {name: NAME, value: "lr-$(LR)"}
        resources:
          requests: {cpu: 500m, memory: 1Gi, example.com/fpga: 1}
          limits: {cpu: 1, nvidia.com/gpu: 2, example.com/fpga: 1}
"""


def job(
    container: str = "command: [run]", spec: str = "", pod: str = "restartPolicy: Never", meta: str = "name: j"
) -> str:
    return (
        f"apiVersion: batch/v1\nkind: Job\nmetadata: {{{meta}}}\nspec:\n{spec}  template:\n    spec:\n      {pod}\n"
        f"      containers:\n      - {{{container}}}\n"
    )


def read(text: str) -> JobSpec:
    (spec,) = read_jobs("job.yaml", text)
    return spec


def errors(text: str) -> list[Problem]:
    with pytest.raises(InvalidManifest) as caught:
        read_jobs("job.yaml", text)
    return list(caught.value.problems)


def test_a_job_with_everything():
    assert read(JOB) == JobSpec(
        name="train",
        argv=("python", "train.py", "--lr=0.1", "$(NOBODY)", "$(LR)"),
        workdir="/data",
        env={"LR": "0.1", "NAME": "lr-0.1"},
        project="vision",
        namespace="team",
        queue="general",
        priority_class="training",
        shares=2,
        gpu_memory=8 * 2**30,
        cpus=500,
        memory=2**30,
        requests={"example.com/fpga": 1},
        node_selector={"tenure.dev/card": "nvidia-h200"},
        affinity_terms=(
            NodeSelectorTerm(expressions=(LabelRequirement(key="zone", operator="In", values=("a", "b")),)),
        ),
        tolerations=(Toleration(key="spot", operator="Exists", effect="NoSchedule"),),
        processes=3,
        policy=GangPolicy.EACH,
        completions=6,
        indexed=True,
        backoff_limit=2,
        active_deadline_s=3600.0,
        grace_s=5.0,
        labels={
            "app": "x",
            "kueue.x-k8s.io/queue-name": "general",
            "kueue.x-k8s.io/priority-class": "training",
            "tenure.dev/project": "vision",
        },
        notes=(
            "line 18: spec.ttlSecondsAfterFinished: has no effect: a job's record stays until it is removed",
            "line 38: spec.template.spec.containers[0].image: has no effect on one machine: the command runs on the machine itself, not in an image",
            "line 12: spec.suspend: is how Kueue holds a job until it has quota; every job here waits for quota, and then runs",
        ),
    )


def test_a_job_with_nothing_has_kubernetes_defaults():
    spec = read(job())
    assert spec == JobSpec(name="j", argv=("run",), policy=GangPolicy.EACH, backoff_limit=6)


def test_the_pods_class_counts_where_no_label_does():
    assert read(job(pod="restartPolicy: Never\n      priorityClassName: high")).priority_class == "high"


def test_a_missing_request_is_its_limit():
    spec = read(job("command: [x], resources: {limits: {cpu: 2, nvidia.com/gpu: 1, tenure.dev/gpu-memory: 4Gi}}"))
    assert (spec.cpus, spec.shares, spec.gpu_memory) == (2000, 1, 4 * 2**30)


def test_card_memory_may_stand_on_the_job():
    text = job(
        "command: [x], resources: {limits: {nvidia.com/gpu: 1}}",
        meta="name: j, annotations: {tenure.dev/gpu-memory: 4Gi}",
    )
    assert read(text).gpu_memory == 4 * 2**30


@pytest.mark.parametrize(
    ("spec", "processes", "completions"),
    [
        ("", 1, None),
        ("  parallelism: 4\n", 4, None),
        ("  parallelism: 4\n  completions: 2\n", 2, 2),
        ("  completions: 5\n", 1, 5),
    ],
)
def test_no_more_run_at_once_than_are_wanted(spec: str, processes: int, completions: int | None):
    read_spec = read(job(spec=spec))
    assert (read_spec.processes, read_spec.completions) == (processes, completions)


def test_a_gang_may_be_partly_admitted():
    spec = read(
        job(
            spec="  parallelism: 4\n  completions: 4\n",
            meta='name: j, annotations: {kueue.x-k8s.io/job-min-parallelism: "2"}',
        )
    )
    assert (spec.processes, spec.min_processes) == (4, 2)


def test_the_shorter_of_two_time_limits_counts_and_is_named():
    text = job(
        pod="restartPolicy: Never\n      activeDeadlineSeconds: 90",
        meta='name: j, labels: {kueue.x-k8s.io/max-exec-time-seconds: "60"}',
    )
    spec = read(text)
    assert spec.time_limit_s == 60.0
    assert any("max-exec-time-seconds" in note for note in spec.notes)


def test_several_jobs_in_one_file_and_in_a_list():
    one, two = job(meta="name: a"), job(meta="generateName: b-")
    assert [s.name for s in read_jobs("f", one + "---\n" + two)] == ["a", "b"]
    listed = "apiVersion: v1\nkind: List\nitems:\n" + "".join(
        "- " + one.replace("\n", "\n  ").rstrip() + "\n" for _ in range(2)
    )
    assert [s.name for s in read_jobs("f", listed)] == ["a", "a"]


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(A)", "x1y1"),
        ("$(B)", "$(B)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A", "$A"),
        ("$(", "$("),
        ("$()", "$()"),
        ("a$$", "a$"),
    ],
)
def test_references_are_expanded_as_kubernetes_does(text: str, expanded: str):
    assert expand(text, {"A": "1"}) == expanded


def test_a_variable_refers_only_to_those_above_it():
    spec = read(job('command: [x], env: [{name: A, value: "$(B)"}, {name: B, value: b}, {name: C, value: "$(B)"}]'))
    assert spec.env == {"A": "$(B)", "B": "b", "C": "b"}


NAMED = {
    "a cluster wants the same amount under limits": job("command: [x], resources: {requests: {nvidia.com/gpu: 1}}"),
    "podset-preferred-topology": job(meta="name: j, annotations: {kueue.x-k8s.io/podset-preferred-topology: rack}"),
    "belongs into the Job's own metadata.labels": job(meta="name: j, annotations: {kueue.x-k8s.io/queue-name: q}"),
    "volumes": job(pod="restartPolicy: Never\n      volumes: [{name: v}]"),
    "podFailurePolicy": job(spec="  podFailurePolicy: {rules: []}\n"),
    "livenessProbe": job("command: [x], livenessProbe: {}"),
    "podAntiAffinity": job(pod="restartPolicy: Never\n      affinity: {podAntiAffinity: {}}"),
    "serviceAccountName": job(pod="restartPolicy: Never\n      serviceAccountName: a"),
    "restartPolicy": job(pod="hostNetwork: false"),
    "completions": job(spec="  parallelism: 2\n"),
}  # fmt: skip


@pytest.mark.parametrize("field", NAMED)
def test_what_has_no_effect_is_named(field: str):
    assert any(field in note for note in read(NAMED[field]).notes)


REFUSED = {
    "a slip in the queue's label": (job(meta="name: j, labels: {kueue.x-k8s.io/queue-nam: q}"), 'metadata.labels["kueue.x-k8s.io/queue-nam"]', 'did you mean "kueue.x-k8s.io/queue-name"?'),
    "no command": (job("image: x"), "spec.template.spec.containers[0].command", "entry point"),
    "two containers": (job("command: [x]") + "      - {command: [y]}\n", "spec.template.spec.containers", "2 containers"),
    "no container": (job().replace("\n      - {command: [run]}", " []"), "spec.template.spec.containers", "too few"),
    "init containers": (job(pod="restartPolicy: Never\n      initContainers: [{name: i}]"), "spec.template.spec.initContainers", "what must run first"),
    "valueFrom": (job("command: [x], env: [{name: A, valueFrom: {fieldRef: {fieldPath: x}}}]"), "spec.template.spec.containers[0].env[0].valueFrom", "write the value itself"),
    "envFrom": (job("command: [x], envFrom: [{configMapRef: {name: c}}]"), "spec.template.spec.containers[0].envFrom", "write the value itself"),
    "a number as value": (job("command: [x], env: [{name: A, value: 5}]"), "spec.template.spec.containers[0].env[0].value", 'in quotes: "5"'),
    "a typo": (job("comand: [x], command: [x]"), "spec.template.spec.containers[0].comand", 'did you mean "command"?'),
    "a typo in the spec": (job(spec="  paralelism: 2\n"), "spec.paralelism", 'did you mean "parallelism"?'),
    "requests above limits": (job("command: [x], resources: {requests: {cpu: 2}, limits: {cpu: 1}}"), "spec.template.spec.containers[0].resources.requests.cpu", "more than the limit"),
    "gpu requests below limits": (job("command: [x], resources: {requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 2}}"), 'spec.template.spec.containers[0].resources.requests["nvidia.com/gpu"]', "both equal"),
    "half a gpu": (job("command: [x], resources: {limits: {nvidia.com/gpu: 500m}}"), 'spec.template.spec.containers[0].resources.limits["nvidia.com/gpu"]', "whole number"),
    "pods": (job("command: [x], resources: {limits: {pods: 1}}"), "spec.template.spec.containers[0].resources.limits.pods", "cannot ask for pods"),
    "two memories": (job("command: [x], resources: {limits: {tenure.dev/gpu-memory: 2Gi}}", meta="name: j, annotations: {tenure.dev/gpu-memory: 4Gi}"), 'metadata.annotations["tenure.dev/gpu-memory"]', "keep one"),
    "Indexed without completions": (job(spec="  completionMode: Indexed\n"), "spec.completions", "required"),
    "parallelism 0": (job(spec="  parallelism: 0\n"), "spec.parallelism", "--hold"),
    "completions 0": (job(spec="  completions: 0\n"), "spec.completions", "at least 1"),
    "Always": (job(pod="restartPolicy: Always"), "spec.template.spec.restartPolicy", "one of Never, OnFailure"),
    "a minimum above the size": (job(meta='name: j, annotations: {kueue.x-k8s.io/job-min-parallelism: "2"}'), 'metadata.annotations["kueue.x-k8s.io/job-min-parallelism"]', "from 1 to 1"),
    "no spec": ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\n", "spec", "required"),
    "a JobSet": ("apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: j}\n", "kind", "not yet read here; a batch/v1 Job"),
    "a Volcano Job": ("apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: j}\n", "kind", "Volcano's Job is not yet read here"),
    "policy": ("apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: j}\n", "kind", "policy directory"),
    "an unknown kind": ("apiVersion: batch/v1\nkind: Jobb\nmetadata: {name: j}\n", "kind", 'did you mean "Job"?'),
    "another version": ("apiVersion: batch/v2\nkind: Job\nmetadata: {name: j}\n", "apiVersion", "batch/v1 would work"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=REFUSED)
def test_refused(case: str):
    text, field, words = REFUSED[case]
    found = errors(text)
    assert [p.field for p in found] == [field]
    assert words in found[0].message
    assert found[0].line is not None


def test_an_empty_file_is_refused():
    assert "there is no object" in errors("# nothing\n")[0].message


def test_all_problems_of_all_jobs_come_out_together():
    found = errors(job("comand: [x]") + "---\n" + job(spec="  parallelism: x\n"))
    assert [(p.document, p.field.rsplit(".", 1)[-1]) for p in found] == [
        (1, "comand"),
        (1, "command"),
        (2, "parallelism"),
    ]
