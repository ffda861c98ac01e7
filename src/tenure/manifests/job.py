"""`batch/v1` Jobs, as Kueue's users write them, read into the one job model.

One container's command runs on the machine itself, `parallelism` times at once.  A field that is known and has no
effect is in the job's notes; a field whose loss would change what runs is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from tenure.domain.amounts import CPU, GPU, GPU_MEMORY, MEMORY
from tenure.domain.errors import InvalidManifest, Problem
from tenure.domain.job import GangPolicy, JobSpec

from .documents import Document, read_documents
from .job_schema import JOB_SPEC
from .kinds import Header, Kind, read_object
from .scalars import amount_at
from .schema import Field, Record
from .shapes import affinity_terms, plain, toleration
from .spots import Spot

__all__ = ["JOB_KINDS", "expand", "read_jobs"]

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
MAX_TIME_LABEL = "kueue.x-k8s.io/max-exec-time-seconds"
MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
PROJECT_LABEL = "tenure.dev/project"

_NATIVE = {CPU, MEMORY, "ephemeral-storage"}  # the only resources whose request may be less than their limit
_TO_COME = "is not yet read here; a batch/v1 Job, a script with #SBATCH lines and a command line are"
_ELSEWHERE = {
    "JobSet": _TO_COME,
    "PyTorchJob": _TO_COME,
    "MPIJob": _TO_COME,
    "RayJob": _TO_COME,
    "Workflow": _TO_COME,
    "PodGroup": _TO_COME,
    "CronJob": "is not read here: submit its Job when it is due, or give it --begin",
    "Pod": "is not read here; put its spec into a Job's template",
    "Deployment": "is not read here; a job ends, and a Deployment does not",
    **{
        kind: "is policy, not a job; it belongs into the policy directory"
        for kind in ("ClusterQueue", "LocalQueue", "ResourceFlavor", "Cohort", "WorkloadPriorityClass", "PriorityClass")
    },
}


def read_jobs(path: str, text: str) -> list[JobSpec]:
    """Every Job of a YAML or JSON text, in order.  Raises InvalidManifest with all its problems, or if there is none."""
    documents, bad = read_documents(path, text)
    problems = list(bad)
    specs: list[JobSpec] = []
    for document in documents:
        own: list[Problem] = []
        spec = _read(document, own)
        errors = [p for p in own if p.severity == "error"]
        problems.extend(errors)
        if spec is not None and not errors:
            specs.append(_with_notes(spec, own))
    if not documents and not problems:
        message = "there is no object in this file; write a Job with apiVersion: batch/v1"
        problems.append(Problem(file=path, document=None, line=None, field="", message=message))
    if problems:
        raise InvalidManifest(problems)
    return specs


def _read(document: Document, problems: list[Problem]) -> JobSpec | None:
    if document.root.text("apiVersion") == "batch.volcano.sh/v1alpha1":
        line = next((e.line for e in document.root.entries if e.key == "apiVersion"), document.root.line)
        Spot(problems, document.file, document.number, line, document.path).child("kind").error(
            f"Volcano's Job {_TO_COME}"
        )
        return None
    read = read_object(document, JOB_KINDS, problems, elsewhere=_ELSEWHERE)
    return None if read is None or not isinstance(read[1], JobSpec) else read[1]


def _with_notes(spec: JobSpec, warnings: Sequence[Problem]) -> JobSpec:
    notes = tuple(f"line {p.line}: {p.field}: {p.message}" for p in warnings)
    return replace(spec, notes=notes)


def _build(header: Header, record: Record) -> JobSpec:
    spec = record.record("spec")
    template = spec.record("template")
    pod = template.record("spec")
    container = _container(pod)
    env = _env(container)
    amounts = _resources(container)
    _memory_annotation(amounts, (record.record("metadata"), template.record("metadata")))
    processes, completions = _counts(spec)
    meta = record.record("metadata")
    _kubernetes_habits(spec, pod)
    _platform_keys(meta, on_job=True)
    _platform_keys(template.record("metadata"), on_job=False)
    return JobSpec(
        name=header.name or meta.get("generateName", "").rstrip("-") or "job",
        argv=_argv(container, env) if pod.get("containers") else (),
        workdir=container.get("workingDir", ""),
        env=env,
        project=header.labels.get(PROJECT_LABEL) or header.annotations.get(PROJECT_LABEL) or "default",
        namespace=header.namespace,
        queue=header.labels.get(QUEUE_LABEL) or None,
        priority_class=header.labels.get(PRIORITY_LABEL) or pod.get("priorityClassName") or None,
        shares=amounts.pop(GPU, 0),
        gpu_memory=amounts.pop(GPU_MEMORY, 0),
        cpus=amounts.pop(CPU, 0),
        memory=amounts.pop(MEMORY, 0),
        requests=amounts,
        node_selector=plain(pod.get("nodeSelector")),
        affinity_terms=affinity_terms(pod.record("affinity").record("nodeAffinity")),
        tolerations=tuple(toleration(r) for r in pod.get("tolerations") or ()),
        processes=processes,
        min_processes=_min_parallelism(header, meta, processes),
        policy=GangPolicy.EACH,
        completions=completions,
        indexed=spec.get("completionMode") == "Indexed",
        backoff_limit=spec.get("backoffLimit", 6),
        time_limit_s=_time_limit(header, meta, pod),
        active_deadline_s=_seconds(spec.get("activeDeadlineSeconds")),
        grace_s=float(pod.get("terminationGracePeriodSeconds", 30)),
        labels={**plain(template.record("metadata").get("labels")), **header.labels},
    )


def _container(pod: Record) -> Record:
    """The one container.  More than one would need what one process cannot be: refused."""
    containers = pod.get("containers") or []
    if len(containers) > 1:
        pod.at("containers").error(
            f"{len(containers)} containers are not run here; a job is one container's command, so submit the others as jobs"
        )
    return containers[0] if containers else Record(pod.at("containers"))


_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")


def expand(text: str, env: Mapping[str, str]) -> str:
    """Kubernetes' `$(NAME)`: known names are replaced, unknown ones stay as they are, `$$` is a plain `$`."""

    def one(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return env.get(match[1], match[0])

    return _REFERENCE.sub(one, text)


def _env(container: Record) -> dict[str, str]:
    """Variables in order; each may refer to those above it.  A name given twice counts as its last value."""
    env: dict[str, str] = {}
    for item in container.get("env") or ():
        if item.get("name") is not None:
            env[item.get("name")] = expand(item.get("value", ""), env)
    return env


def _argv(container: Record, env: Mapping[str, str]) -> tuple[str, ...]:
    command = container.get("command") or []
    if not command:
        container.at("command").error(
            "is missing, and an image's own entry point is not known on one machine; write the program as command"
        )
    return tuple(expand(word, env) for word in (*command, *(container.get("args") or [])))


def _resources(container: Record) -> dict[str, int]:
    """Requests, as Kubernetes completes them: a missing request is its limit; extended resources have both equal."""
    resources = container.record("resources")
    requests, limits = _amounts(resources, "requests"), _amounts(resources, "limits")
    for name, (amount, at) in requests.items():
        if name not in limits:
            if name not in _NATIVE:
                at.warn("stands under requests alone; a cluster wants the same amount under limits")
            continue
        if amount > limits[name][0]:
            at.error(f"is more than the limit of {name}; make it at most as much")
        elif name not in _NATIVE and amount != limits[name][0]:
            at.error(f"differs from the limit of {name}; Kubernetes wants both equal for such resources")
    return {name: amount for name, (amount, _) in {**limits, **requests}.items()}


def _amounts(resources: Record, field: str) -> dict[str, tuple[int, Spot]]:
    pairs = resources.get(field)
    found: dict[str, tuple[int, Spot]] = {}
    for name, text in ({} if pairs is None else pairs).items():
        at = pairs.spots[name]
        amount = amount_at(text, at, resource=name)
        if name == "pods":
            at.error("a container cannot ask for pods; remove it")
        elif amount is not None:
            if name == GPU and not re.fullmatch(r"\d+", text, re.ASCII):
                at.error(f"{text} does not work; shares of a card are a whole number")
            found[name] = (amount, at)
    return found


def _memory_annotation(amounts: dict[str, int], places: Sequence[Record]) -> None:
    """`tenure.dev/gpu-memory` may stand as an annotation, which a cluster without the resource accepts too."""
    for meta in places:
        annotations = meta.get("annotations")
        text = None if annotations is None else annotations.get(GPU_MEMORY)
        if text is None:
            continue
        at = annotations.spots[GPU_MEMORY]
        amount = amount_at(text, at, resource=GPU_MEMORY)
        if amount is not None and amounts.setdefault(GPU_MEMORY, amount) != amount:
            at.error(f"says {text}, and the job says another amount elsewhere; keep one")


def _counts(spec: Record) -> tuple[int, int | None]:
    """How many run at once (never more than are wanted in all), and how many successes end the job."""
    parallelism: int = spec.get("parallelism", 1)
    completions: int | None = spec.get("completions")
    if parallelism == 0:
        spec.at("parallelism").error("0 starts nothing; at least 1 (to keep a job back, submit it with --hold)")
    if completions == 0:
        spec.at("completions").error("0 asks for nothing; at least 1")
    if spec.get("completionMode") == "Indexed" and not spec.given("completions"):
        spec.at("completions").error("is required with completionMode: Indexed")
    if completions is None and parallelism > 1:
        spec.at("completions").warn(f"is absent: the job ends when {parallelism} processes have succeeded")
    return max(1, parallelism if completions is None else min(parallelism, completions)), completions or None


def _min_parallelism(header: Header, meta: Record, processes: int) -> int | None:
    text = header.annotations.get(MIN_PARALLELISM)
    if text is None:
        return None
    at = meta.get("annotations").spots[MIN_PARALLELISM]
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not 1 <= int(text) <= processes:
        at.error(f'"{text}" does not work; a whole number from 1 to {processes} would')
        return None
    return int(text)


def _time_limit(header: Header, meta: Record, pod: Record) -> float | None:
    """A pod's own deadline bounds each attempt; so, here, does Kueue's label for the longest execution."""
    limits: list[Any] = [pod.get("activeDeadlineSeconds")]
    text = header.labels.get(MAX_TIME_LABEL)
    if text is not None:
        at = meta.get("labels").spots[MAX_TIME_LABEL]
        if re.fullmatch(r"[1-9]\d{0,9}", text, re.ASCII):
            limits.append(int(text))
            at.warn("counts for each attempt here, not over all of them")
        else:
            at.error(f'"{text}" does not work; a whole number of seconds, at least 1, would')
    return _seconds(min((x for x in limits if x is not None), default=None))


def _seconds(value: int | None) -> float | None:
    return None if value is None else float(value)


def _kubernetes_habits(spec: Record, pod: Record) -> None:
    """What people write because a cluster wants it, named so that nobody waits for an effect."""
    if spec.get("suspend"):
        spec.at("suspend").warn(
            "is how Kueue holds a job until it has quota; every job here waits for quota, and then runs"
        )
    if not pod.given("restartPolicy"):
        pod.at("restartPolicy").warn("is absent: taken as Never (a cluster wants it written)")


_LABELS = {QUEUE_LABEL, PRIORITY_LABEL, MAX_TIME_LABEL, PROJECT_LABEL}
_ANNOTATIONS = {MIN_PARALLELISM, GPU_MEMORY, PROJECT_LABEL}


def _platform_keys(meta: Record, *, on_job: bool) -> None:
    """Kueue's and our own labels and annotations: a slip in `queue-name` must not send a job to the default queue."""
    for place, known in (("labels", _LABELS), ("annotations", _ANNOTATIONS)):
        pairs = meta.get(place)
        for key in [] if pairs is None else list(pairs):
            if not key.startswith(("kueue.x-k8s.io/", "tenure.dev/")):
                continue
            if key in known and (on_job or key == GPU_MEMORY):
                continue
            at, (near, *_) = pairs.spots[key], [*get_close_matches(key, known, 1, 0.85), ""]
            if key in _LABELS | _ANNOTATIONS:
                at.warn(
                    f"has no effect here; it belongs into the Job's own metadata.{place if key in known else _OTHER[place]}"
                )
            elif near:
                at.error(f'"{key}" is not known; did you mean "{near}"?')
            else:
                at.warn("has no effect here")


_OTHER = {"labels": "annotations", "annotations": "labels"}

JOB_KINDS: Mapping[str, Kind] = {
    "Job": Kind(
        name="Job",
        versions=("batch/v1",),
        fields={"spec": Field(JOB_SPEC, required=True)},
        build=_build,
        namespaced=True,
        generated=True,
    )
}
