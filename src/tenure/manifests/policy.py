"""Policy files in, one `Policy` out; and what is wrong or suspicious in them, all of it, in the order of the files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenure.domain.errors import InvalidManifest, Problem
from tenure.domain.model import Model
from tenure.domain.options import EngineOptions
from tenure.domain.policy import (
    ClusterQueue,
    Cohort,
    Flavor,
    LimitRange,
    LocalQueue,
    Namespace,
    Policy,
    PriorityClass,
    ResourceQuota,
)

from .configuration import CONFIGURATION, Configuration
from .documents import Document, read_documents
from .kinds import Header, Kind, read_object
from .kubernetes import KUBERNETES_KINDS
from .kueue import KUEUE_KINDS
from .models import MODEL, refuse_same_names
from .options import ENGINE_OPTIONS
from .spelling import nearest
from .spots import Spot
from .texts import read_directory

__all__ = ["POLICY_KINDS", "PolicyReading", "read_policy", "read_policy_dir"]

POLICY_KINDS: Mapping[str, Kind] = {
    **KUEUE_KINDS,
    **KUBERNETES_KINDS,
    CONFIGURATION.name: CONFIGURATION,
    ENGINE_OPTIONS.name: ENGINE_OPTIONS,
    MODEL.name: MODEL,
}

_SUBMIT = "is a job, not policy; give it to `tenure submit`"
_ELSEWHERE = {
    "Job": _SUBMIT,
    "JobSet": _SUBMIT,
    "Pod": _SUBMIT,
    "PodGroup": _SUBMIT,
    "CronJob": _SUBMIT,
    "Workload": "is written by Kueue itself, not by people; leave it out",
    "Topology": "has no meaning on one machine; leave it out",
    "ProvisioningRequestConfig": "has no meaning on one machine; leave it out",
    "MultiKueueConfig": "has no meaning on one machine; leave it out",
    "MultiKueueCluster": "has no meaning on one machine; leave it out",
    "Queue": "is Volcano's; write a ClusterQueue and a LocalQueue",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyReading:
    """`problems` are the warnings; with an error there is no reading, but InvalidManifest."""

    policy: Policy
    problems: tuple[Problem, ...] = ()
    models: Mapping[str, Model] = field(default_factory=dict)


def read_policy_dir(path: Path | str) -> PolicyReading:
    """The policy of a directory's YAML and JSON files.  Raises InvalidManifest with every problem of every file."""
    files, problems = read_directory(Path(path))
    return _read(files, list(problems))


def read_policy(files: Sequence[tuple[str, str]]) -> PolicyReading:
    """The policy of `(name, text)` files.  Raises InvalidManifest with every problem of every file."""
    return _read(files, [])


@dataclass(frozen=True, slots=True)
class _Read:
    header: Header
    value: Any


def _read(files: Sequence[tuple[str, str]], problems: list[Problem]) -> PolicyReading:
    documents: list[Document] = []
    for name, text in files:
        found, bad = read_documents(name, text)
        documents.extend(found)
        problems.extend(bad)
    objects = [
        _Read(*pair)
        for document in documents
        if (pair := read_object(document, POLICY_KINDS, problems, elsewhere=_ELSEWHERE)) is not None
    ]
    _refuse_twins(objects)
    refuse_same_names([(item.header, item.value) for item in objects if isinstance(item.value, Model)])
    whole = not any(p.severity == "error" for p in problems)
    policy = _assemble(objects)
    if whole:  # a reference into a document that could not be read is not a fault of its own
        _references(objects, policy)
    problems = _in_file_order(problems, [name for name, _ in files])
    if any(p.severity == "error" for p in problems):
        raise InvalidManifest(problems)
    models = {item.value.name: item.value for item in objects if isinstance(item.value, Model)}
    return PolicyReading(policy=policy, problems=tuple(problems), models=models)


def _in_file_order(problems: Sequence[Problem], names: Sequence[str]) -> list[Problem]:
    rank = {name: i for i, name in enumerate(names)}
    return sorted(problems, key=lambda p: (rank.get(p.file, -1), p.document or 0, p.line or 0))


def _refuse_twins(objects: Sequence[_Read]) -> None:
    """An object stands once; so does what there is one of (a Configuration), and a global default."""
    first: dict[tuple[str, str, str], Header] = {}
    default: Header | None = None
    for item in objects:
        header = item.header
        alone = not POLICY_KINDS[header.kind].named
        if not header.name and not alone:
            continue
        name = "" if alone else header.name
        earlier = first.setdefault((header.kind, header.namespace, name), header)
        if earlier is not header:
            what = (
                f'{header.kind} "{header.name}"'
                if name
                else f"{'an' if header.kind[0] in 'AEIOU' else 'a'} {header.kind}"
            )
            header.spot.error(f"{what} is already in {_place(earlier.spot)}; keep one")
        if isinstance(item.value, PriorityClass) and item.value.global_default:
            if default is not None and earlier is header:
                header.spot.child("globalDefault").error(
                    f'"{default.name}" in {_place(default.spot)} is the default already; one may be'
                )
            default = default or header


def _place(spot: Spot) -> str:
    return f"{spot.file}:{spot.line}"


def _assemble(objects: Sequence[_Read]) -> Policy:
    values = [item.value for item in objects]
    classes = [v for v in values if isinstance(v, PriorityClass)]
    config = next((v for v in values if isinstance(v, Configuration)), Configuration())
    return Policy(
        flavors={v.name: v for v in values if isinstance(v, Flavor)},
        cluster_queues={v.name: v for v in values if isinstance(v, ClusterQueue)},
        cohorts={v.name: v for v in values if isinstance(v, Cohort)},
        local_queues={(v.namespace, v.name): v for v in values if isinstance(v, LocalQueue)},
        workload_priority_classes={v.name: v for v in classes if v.workload},
        priority_classes={v.name: v for v in classes if not v.workload},
        namespaces={v.name: v for v in values if isinstance(v, Namespace)},
        resource_quotas=tuple(v for v in values if isinstance(v, ResourceQuota)),
        limit_ranges=tuple(v for v in values if isinstance(v, LimitRange)),
        admission_checks={i.header.name: i.value for i in objects if i.header.kind == "AdmissionCheck"},
        fair_sharing=config.fair_sharing,
        exclude_resource_prefixes=config.exclude_resource_prefixes,
        transformations=config.transformations,
        quota_check=config.quota_check,
        wait_for_pods_ready=config.wait_for_pods_ready,
        engine_options=next((v for v in values if isinstance(v, EngineOptions)), None),
    )


def _references(objects: Sequence[_Read], policy: Policy) -> None:
    """What Kueue accepts and nobody wants, as warnings: names that lead nowhere, queues that nobody may use."""
    looped = _cycles(policy.cohorts)
    for item in objects:
        value, spot = item.value, item.header.spot
        if isinstance(value, ClusterQueue | Cohort):
            for g, group in enumerate(value.resource_groups):
                for f, row in enumerate(group.flavors):
                    if row.flavor not in policy.flavors:
                        at = spot.child("spec").child("resourceGroups").item(g).child("flavors").item(f).child("name")
                        at.warn(
                            _missing(
                                "ResourceFlavor", row.flavor, policy.flavors, "the queue admits nothing until it exists"
                            )
                        )
        if isinstance(value, ClusterQueue):
            for ref in value.admission_checks:
                if ref.name not in policy.admission_checks:
                    at = spot.child("spec").child("admissionChecksStrategy")
                    at.warn(
                        _missing(
                            "AdmissionCheck",
                            ref.name,
                            policy.admission_checks,
                            "the queue admits nothing until it exists",
                        )
                    )
        if isinstance(value, ClusterQueue) and value.namespace_selector is None:
            at = spot.child("spec").child("namespaceSelector")
            at.warn("is absent, so no namespace may use this queue; {} admits every namespace")
        if isinstance(value, Cohort) and value.name in looped:
            at = spot.child("spec").child("parentName")
            at.warn(
                f"the parents lead back to {value.name} ({' -> '.join(looped[value.name])}); nothing is admitted in this tree"
            )
        if isinstance(value, LocalQueue) and value.cluster_queue not in policy.cluster_queues:
            at = spot.child("spec").child("clusterQueue")
            at.warn(
                _missing("ClusterQueue", value.cluster_queue, policy.cluster_queues, "its jobs wait until it exists")
            )
        if isinstance(value, Model):
            _model_references(value, spot.child("spec"), policy)
        if item.header.namespace not in {"", "default", *policy.namespaces}:
            at = spot.child("metadata").child("namespace")
            at.warn(_missing("Namespace", item.header.namespace, policy.namespaces, "it counts as one without labels"))


def _model_references(model: Model, spec: Spot, policy: Policy) -> None:
    """As warnings: a policy that loses a queue must not keep the whole platform from coming up."""
    queues = {name for namespace, name in policy.local_queues if namespace == model.namespace}
    if (model.queue or "default") not in queues:
        lost = model.queue or "default"
        text = f'there is no LocalQueue "{lost}": it cannot wake until it exists'
        spec.child("queueName").warn(text + nearest(lost, queues))
    classes = {*policy.workload_priority_classes, *policy.priority_classes}
    if model.priority_class is not None and model.priority_class not in classes:
        text = f'there is no WorkloadPriorityClass "{model.priority_class}": it cannot wake until it exists'
        spec.child("priorityClassName").warn(text + nearest(model.priority_class, classes))


def _missing(kind: str, name: str, known: Iterable[str], effect: str) -> str:
    near = nearest(name, known)
    return f'there is no {kind} "{name}": {effect}{near if near.startswith("; did") else ""}'


def _cycles(cohorts: Mapping[str, Cohort]) -> dict[str, list[str]]:
    """Every cohort whose parents lead back to itself, with the way round."""
    found: dict[str, list[str]] = {}
    for name in cohorts:
        way, at = [name], cohorts[name].parent
        while at is not None and at not in way:
            way.append(at)
            at = cohorts[at].parent if at in cohorts else None
        if at == name:
            found[name] = [*way, name]
    return found
