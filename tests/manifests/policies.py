"""Builders of policy texts for these tests."""

from __future__ import annotations

from tenure.domain.errors import InvalidManifest, Problem
from tenure.manifests.policy import PolicyReading, read_policy

V = "kueue.x-k8s.io/v1beta2"


def obj(kind: str, name: str = "x", body: str = "", *, version: str = V) -> str:
    """One object; `body` is what follows metadata, unindented."""
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}}}\n{body}\n"


def queue(*lines: str, name: str = "q", version: str = V) -> str:
    """A ClusterQueue whose spec is these flow-style lines (`key: value`)."""
    body = "spec:\n" + "\n".join(f"  {line}" for line in ("namespaceSelector: {}", *lines))
    return obj("ClusterQueue", name, body, version=version)


def flavor(name: str = "f", *lines: str) -> str:
    return obj("ResourceFlavor", name, "spec:\n" + "\n".join(f"  {line}" for line in lines) if lines else "")


def group(quota: str = "nominalQuota: 4", *, resource: str = "cpu", flavor: str = "f") -> str:
    """resourceGroups with one resource in one flavor."""
    return (
        f"resourceGroups: [{{coveredResources: [{resource}], "
        f"flavors: [{{name: {flavor}, resources: [{{name: {resource}, {quota}}}]}}]}}]"
    )


def read(*texts: str) -> PolicyReading:
    return read_policy([("p.yaml", "---\n".join(texts))])


def errors(*texts: str) -> list[Problem]:
    """The problems of a refused policy."""
    try:
        reading = read(*texts)
    except InvalidManifest as e:
        return [p for p in e.problems if p.severity == "error"]
    raise AssertionError(f"was taken: {reading.policy}")


def warnings(*texts: str) -> list[Problem]:
    return list(read(*texts).problems)
