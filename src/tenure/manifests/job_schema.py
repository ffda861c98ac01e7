"""The fields of a `batch/v1` Job: which are read, which are known and have no effect here, which are refused."""

from __future__ import annotations

import re

from .scalars import AmountText, Choice, Flag, Number, Text
from .schema import Field, ListOf, MapOf, Object, Refused, Type, Unread
from .shapes import ANNOTATIONS, LABELS, NODE_AFFINITY, RESOURCE, TOLERATION

__all__ = ["JOB_SPEC"]

_NO_IMAGE = "has no effect on one machine: the command runs on the machine itself, not in an image"
_NO_CLUSTER = "has no effect on one machine"
_NO_MOUNTS = "has no effect on one machine: paths are the machine's own"
_NO_PROBES = "has no effect on one machine: a process counts as ready when it has started"
_NO_VALUE_FROM = "is not read here: there are no ConfigMaps, Secrets or pods on one machine; write the value itself"

_ENV = Object(
    {
        "name": Field(
            Text(pattern=re.compile(r"[^=\0]+"), rule="a variable's name is not empty and has no ="), required=True
        ),
        "value": Text(),
        "valueFrom": Refused(_NO_VALUE_FROM),
    }
)
_AMOUNTS = MapOf(key=RESOURCE, value_of=lambda _: AmountText())
_RESOURCES = Object(
    {
        "requests": _AMOUNTS,
        "limits": _AMOUNTS,
        "claims": Refused("is not read here: there are no device claims on one machine; ask for nvidia.com/gpu"),
    }
)


def _unread(message: str, *names: str) -> dict[str, Type]:
    return {name: Unread(message) for name in names}


_CONTAINER = Object(
    {
        "name": Text(),
        "command": ListOf(item=Text()),
        "args": ListOf(item=Text()),
        "workingDir": Text(),
        "env": ListOf(item=_ENV),
        "envFrom": Refused(_NO_VALUE_FROM),
        "resources": _RESOURCES,
        **_unread(_NO_IMAGE, "image", "imagePullPolicy"),
        **_unread(_NO_MOUNTS, "volumeMounts", "volumeDevices"),
        **_unread(_NO_PROBES, "livenessProbe", "readinessProbe", "startupProbe"),
        **_unread(
            _NO_CLUSTER, "ports", "lifecycle", "securityContext", "terminationMessagePath", "terminationMessagePolicy",
            "stdin", "stdinOnce", "tty", "resizePolicy", "restartPolicy", "restartPolicyRules",
        ),
    }
)  # fmt: skip

_ONE_CONTAINER = "is not read here: a job is one container's command; put what must run first into that command"
_POD = Object(
    {
        "containers": Field(ListOf(item=_CONTAINER, low=1), required=True),
        "initContainers": Refused(_ONE_CONTAINER),
        "ephemeralContainers": Refused(_ONE_CONTAINER),
        "restartPolicy": Choice(("Never", "OnFailure")),
        "priorityClassName": Text(),
        "nodeSelector": LABELS,
        "affinity": Object(
            {
                "nodeAffinity": NODE_AFFINITY,
                **_unread("has no effect on one machine: there is one node", "podAffinity", "podAntiAffinity"),
            }
        ),
        "tolerations": ListOf(item=TOLERATION),
        "terminationGracePeriodSeconds": Number(low=0, high=2**31 - 1),
        "activeDeadlineSeconds": Number(low=1),
        "resources": Refused("is not read here for the pod as a whole; write it on the container"),
        "overhead": Refused("is not read here; add it to the container's resources"),
        "resourceClaims": Refused("is not read here: there are no device claims on one machine"),
        **_unread(_NO_MOUNTS, "volumes"),
        **_unread(
            _NO_CLUSTER, "schedulerName", "serviceAccountName", "serviceAccount", "automountServiceAccountToken",
            "imagePullSecrets", "hostNetwork", "hostPID", "hostIPC", "hostUsers", "hostname", "subdomain", "hostAliases",
            "setHostnameAsFQDN", "dnsPolicy", "dnsConfig", "enableServiceLinks", "securityContext", "runtimeClassName",
            "shareProcessNamespace", "readinessGates", "schedulingGates", "topologySpreadConstraints", "priority",
            "preemptionPolicy", "nodeName", "os", "hostnameOverride",
        ),
    }
)  # fmt: skip

_TEMPLATE = Object(
    {
        "metadata": Object(
            {
                "labels": LABELS,
                "annotations": ANNOTATIONS,
                **_unread(_NO_CLUSTER, "name", "namespace", "generateName", "creationTimestamp", "finalizers"),
            }
        ),
        "spec": Field(_POD, required=True),
    }
)

JOB_SPEC = Object(
    {
        "template": Field(_TEMPLATE, required=True),
        "suspend": Flag(),
        "parallelism": Number(low=0),
        "completions": Number(low=0),
        "completionMode": Choice(("NonIndexed", "Indexed")),
        "backoffLimit": Number(low=0),
        "activeDeadlineSeconds": Number(low=1, high=2**53),
        "ttlSecondsAfterFinished": Unread("has no effect: a job's record stays until it is removed"),
        "backoffLimitPerIndex": Unread("has no effect here: backoffLimit counts the failures of all indexes"),
        "maxFailedIndexes": Unread("has no effect here: backoffLimit counts the failures of all indexes"),
        "podFailurePolicy": Unread("has no effect here: every failure counts towards backoffLimit"),
        "successPolicy": Unread("has no effect here: the job ends when its completions are reached"),
        "podReplacementPolicy": Unread("has no effect here: a process is replaced when it has ended"),
        **_unread(_NO_CLUSTER, "selector", "manualSelector", "managedBy"),
    }
)
