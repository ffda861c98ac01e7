"""Every rule of Kueue's objects: what breaks it is refused, at its field, with what would work."""

from __future__ import annotations

import pytest

from .policies import errors, flavor, group, obj, queue, read, warnings

C = "cohortName: c"
TWO = "coveredResources: [cpu, memory]"

REFUSED = {
    # ResourceFlavor
    "nine node labels": (flavor("f", "nodeLabels: {" + ", ".join(f"k{i}: v" for i in range(9)) + "}"), "spec.nodeLabels", "at most 8"),
    "nine taints": (flavor("f", "nodeTaints: [" + ", ".join(f"{{key: k{i}, effect: NoSchedule}}" for i in range(9)) + "]"), "spec.nodeTaints", "at most 8"),
    "a taint twice": (flavor("f", "nodeTaints: [{key: k, effect: NoSchedule}, {key: k, value: v, effect: NoSchedule}]"), "spec.nodeTaints[1]", "twice"),
    "a taint without effect": (flavor("f", "nodeTaints: [{key: k}]"), "spec.nodeTaints[0].effect", "required"),
    "an unknown effect": (flavor("f", "nodeTaints: [{key: k, effect: NoScedule}]"), "spec.nodeTaints[0].effect", 'did you mean "NoSchedule"?'),
    "nine tolerations": (flavor("f", "tolerations: [" + ", ".join(f"{{key: k{i}}}" for i in range(9)) + "]"), "spec.tolerations", "at most 8"),
    "Exists with a value": (flavor("f", "tolerations: [{key: k, operator: Exists, value: v}]"), "spec.tolerations[0].value", "takes no value"),
    "Equal without a key": (flavor("f", "tolerations: [{value: v}]"), "spec.tolerations[0].key", "required with operator Equal"),
    "tolerationSeconds without NoExecute": (flavor("f", "tolerations: [{key: k, effect: NoSchedule, tolerationSeconds: 5}]"), "spec.tolerations[0].tolerationSeconds", "only with effect: NoExecute"),
    "topology without labels": (flavor("f", "topologyName: t"), "spec.topologyName", "at least one nodeLabel"),
    "a bad label value": (flavor("f", "nodeLabels: {a: '-x'}"), "spec.nodeLabels.a", "begins and ends"),
    "a name that a cluster makes up": (obj("ResourceFlavor", "f").replace("name: f", "generateName: f-"), "metadata.name", "is required"),
    "a bad name": (obj("ResourceFlavor", "Big_One"), "metadata.name", "lower-case"),
    # quotas
    "a limit without a cohort": (queue(group("nominalQuota: 4, borrowingLimit: 1")), "spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit", "needs a cohort"),
    "lending without a cohort": (queue(group("nominalQuota: 4, lendingLimit: 1")), "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit", "set spec.cohortName"),
    "lending more than nominal": (queue(C, group("nominalQuota: 4, lendingLimit: 5")), "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit", "at most 4"),
    "a negative quota": (queue(group("nominalQuota: -1")), "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota", "at least 0"),
    "a negative limit": (queue(C, group("nominalQuota: 1, borrowingLimit: -1")), "spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit", "at least 0"),
    "no quota": (queue(C, group("borrowingLimit: 1")), "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota", "required"),
    "no amount": (queue(group("nominalQuota: lots")), "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota", "such as 2, 500m, 10Gi"),
    "an amount beyond 64 bits": (queue(group("nominalQuota: 1e999999999")), "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota", "out of range"),
    "a boolean amount": (queue(group("nominalQuota: true")), "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota", "got the boolean true"),
    "another order": (
        queue(f"resourceGroups: [{{{TWO}, flavors: [{{name: f, resources: [{{name: memory, nominalQuota: 1}}, {{name: cpu, nominalQuota: 1}}]}}]}}]"),
        "spec.resourceGroups[0].flavors[0].resources", "must list cpu, memory",
    ),
    "a resource left out": (
        queue(f"resourceGroups: [{{{TWO}, flavors: [{{name: f, resources: [{{name: cpu, nominalQuota: 1}}]}}]}}]"),
        "spec.resourceGroups[0].flavors[0].resources", "all of them",
    ),
    "a flavor twice in a group": (
        queue("resourceGroups: [{coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 1}]}, {name: f, resources: [{name: cpu, nominalQuota: 1}]}]}]"),
        "spec.resourceGroups[0].flavors[1].name", "twice",
    ),
    "a flavor in two groups": (
        queue("resourceGroups: [{coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 1}]}]}, {coveredResources: [memory], flavors: [{name: f, resources: [{name: memory, nominalQuota: 1}]}]}]"),
        "spec.resourceGroups[1].flavors[0].name", "already in resourceGroups[0]",
    ),
    "a resource in two groups": (
        queue("resourceGroups: [{coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 1}]}]}, {coveredResources: [cpu], flavors: [{name: g, resources: [{name: cpu, nominalQuota: 1}]}]}]"),
        "spec.resourceGroups[1].coveredResources[0]", "already covered",
    ),
    "a resource covered twice": (
        queue("resourceGroups: [{coveredResources: [cpu, cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 1}]}]}]"),
        "spec.resourceGroups[0].coveredResources[1]", "twice",
    ),
    "no flavors": (queue("resourceGroups: [{coveredResources: [cpu], flavors: []}]"), "spec.resourceGroups[0].flavors", "too few"),
    "nothing covered": (queue("resourceGroups: [{coveredResources: [], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 1}]}]}]"), "spec.resourceGroups[0].coveredResources", "too few"),
    "seventeen groups": (
        queue("resourceGroups: [" + ", ".join(f"{{coveredResources: [r{i}], flavors: [{{name: f{i}, resources: [{{name: r{i}, nominalQuota: 1}}]}}]}}" for i in range(17)) + "]"),
        "spec.resourceGroups", "at most 16",
    ),
    "too many combinations": (
        queue(
            "resourceGroups: [{coveredResources: [" + ", ".join(f"r{i}" for i in range(33)) + "], flavors: ["
            + ", ".join(f"{{name: f{j}, resources: [" + ", ".join(f"{{name: r{i}, nominalQuota: 1}}" for i in range(33)) + "]}" for j in range(16))
            + "]}]"
        ),
        "spec.resourceGroups[0].flavors", "528 combinations",
    ),
    "a bad resource name": (queue("resourceGroups: [{coveredResources: ['nvidia.com/'], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 1}]}]}]"), "spec.resourceGroups[0].coveredResources[0]", "nvidia.com/gpu"),
    # the rest of ClusterQueue
    "borrowing needs reclaim": (queue("preemption: {borrowWithinCohort: {policy: LowerPriority}}"), "spec.preemption.borrowWithinCohort.policy", "needs reclaimWithinCohort"),
    "borrowing needs reclaim, said": (queue("preemption: {reclaimWithinCohort: Never, borrowWithinCohort: {policy: LowerPriority}}"), "spec.preemption.borrowWithinCohort.policy", "LowerPriority or Any"),
    "a threshold beyond int32": (queue("preemption: {reclaimWithinCohort: Any, borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: 3000000000}}"), "spec.preemption.borrowWithinCohort.maxPriorityThreshold", "out of range"),
    "Any within the queue": (queue("preemption: {withinClusterQueue: Any}"), "spec.preemption.withinClusterQueue", "one of Never, LowerPriority, LowerOrNewerEqualPriority"),
    "preference alone": (queue("flavorFungibility: {preference: PreemptionOverBorrowing}"), "spec.flavorFungibility.preference", "both TryNextFlavor"),
    "preference with one": (queue("flavorFungibility: {whenCanBorrow: TryNextFlavor, whenCanPreempt: MayStopSearch, preference: PreemptionOverBorrowing}"), "spec.flavorFungibility.preference", "both TryNextFlavor"),
    "a queueing strategy": (queue("queueingStrategy: StrictFifo"), "spec.queueingStrategy", 'did you mean "StrictFIFO"?'),
    "a stop policy": (queue("stopPolicy: Stop"), "spec.stopPolicy", "one of None, Hold, HoldAndDrain"),
    "a negative weight": (queue("fairSharing: {weight: -1}"), "spec.fairSharing.weight", "above 1e-9"),
    "a weight without end": (queue("fairSharing: {weight: 1e999}"), "spec.fairSharing.weight", "out of range"),
    "a weight next to nothing": (queue("fairSharing: {weight: 1e-9}"), "spec.fairSharing.weight", "above 1e-9"),
    "In without values": (queue()[:-1].replace("{}", "{matchExpressions: [{key: a, operator: In}]}"), "spec.namespaceSelector.matchExpressions[0].values", "at least one value"),
    "Exists with values": (queue()[:-1].replace("{}", "{matchExpressions: [{key: a, operator: Exists, values: [b]}]}"), "spec.namespaceSelector.matchExpressions[0].values", "takes no values"),
    "checks said twice": (queue("admissionChecks: [a]", "admissionChecksStrategy: {admissionChecks: [{name: a}]}"), "spec.admissionChecks", "say the same"),
    "a check twice": (queue("admissionChecksStrategy: {admissionChecks: [{name: a}, {name: a}]}"), "spec.admissionChecksStrategy.admissionChecks[1].name", "twice"),
    "both spellings": (queue("cohort: a", "cohortName: a"), "spec.cohortName", "say the same thing"),
    # Cohort
    "a cohort's limit without a parent": (obj("Cohort", "c", "spec: {" + group("nominalQuota: 4, borrowingLimit: 1") + "}"), "spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit", "set spec.parentName"),
    "a cohort's weight": (obj("Cohort", "c", "spec: {fairSharing: {weight: -2}}"), "spec.fairSharing.weight", "does not work"),
    # LocalQueue, classes, checks
    "a local queue to nowhere": (obj("LocalQueue", "l", "spec: {}"), "spec.clusterQueue", "required"),
    "a local queue without spec": (obj("LocalQueue", "l"), "spec", "required"),
    "a class without value": (obj("WorkloadPriorityClass"), "value", "required"),
    "a class beyond int32": (obj("WorkloadPriorityClass", body="value: 2147483648"), "value", "2147483647 would work"),
    "a class with text": (obj("WorkloadPriorityClass", body='value: "5"'), "value", "without quotes"),
    "a class above the users'": (obj("PriorityClass", body="value: 1000000001", version="scheduling.k8s.io/v1"), "value", "at most 1000000000"),
    "a check without controller": (obj("AdmissionCheck", body="spec: {}"), "spec.controllerName", "required"),
    # Kubernetes' objects
    "a scoped quota": (obj("ResourceQuota", body="spec: {hard: {requests.cpu: 1}, scopes: [Terminating]}", version="v1"), "spec.scopes", "write one for all"),
    "cpu twice": (obj("ResourceQuota", body="spec: {hard: {requests.cpu: 1, cpu: 2}}", version="v1"), "spec.hard.cpu", "keep one"),
    "min above max": (obj("LimitRange", body="spec: {limits: [{type: Container, min: {cpu: 2}, max: {cpu: 1}}]}", version="v1"), "spec.limits[0].min", "more than in max"),
    "a default outside": (obj("LimitRange", body="spec: {limits: [{type: Container, default: {cpu: 2}, max: {cpu: 1}}]}", version="v1"), "spec.limits[0].defaultRequest", "outside"),
    "containers twice": (obj("LimitRange", body="spec: {limits: [{type: Container}, {type: Container}]}", version="v1"), "spec.limits[1].type", "twice"),
    # Configuration
    "strategies in the other order": ("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]}\n", "fairSharing.preemptionStrategies", "only in the order"),
    "an input twice": ("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nresources: {transformations: [{input: a}, {input: a}]}\n", "resources.transformations[1].input", "transformed twice"),
    "a bad output": ("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nresources: {transformations: [{input: a, outputs: {b: lots}}]}\n", "resources.transformations[0].outputs.b", "not a quantity"),
    "a bad timeout": ("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nwaitForPodsReady: {timeout: soon}\n", "waitForPodsReady.timeout", "30s, 5m"),
    "no timeout at all": ("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nwaitForPodsReady: {timeout: 0s}\n", "waitForPodsReady.timeout", "more than 0"),
    "a typo in the configuration": ("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfairSharng: {}\n", "fairSharng", 'did you mean "fairSharing"?'),
    # objects as such
    "an unknown kind": (obj("ClusterQueu"), "kind", 'did you mean "ClusterQueue"?'),
    "a job": (obj("Job", version="batch/v1"), "kind", "tenure submit"),
    "an unknown version": (obj("ClusterQueue", version="kueue.x-k8s.io/v1"), "apiVersion", "kueue.x-k8s.io/v1beta2 or kueue.x-k8s.io/v1beta1 would work"),
    "another group": (obj("PriorityClass", body="value: 1"), "apiVersion", "scheduling.k8s.io/v1 would work"),
    "no kind": (f"apiVersion: {'v1'}\nmetadata: {{name: x}}\n", "kind", "required"),
    "no version": ("kind: ClusterQueue\nmetadata: {name: x}\n", "apiVersion", "required"),
    "no name": ("apiVersion: v1\nkind: Namespace\n", "metadata.name", "required"),
    "a number as name": ("apiVersion: v1\nkind: Namespace\nmetadata: {name: 5}\n", "metadata.name", 'in quotes: "5"'),
    "an unknown field": (queue("resourceGroup: []"), "spec.resourceGroup", 'did you mean "resourceGroups"?'),
    "an unknown field at the top": (queue() + "sepc: {}\n", "sepc", 'did you mean "spec"?'),
    "an unknown field far from any": (queue("zzz: 1"), "spec.zzz", "known here: admissionChecks"),
    "a list for a mapping": (queue("preemption: []"), "spec.preemption", "expected a mapping, got a list"),
    "text for a list": (queue("resourceGroups: x"), "spec.resourceGroups", 'expected a list, got the text "x"'),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=REFUSED)
def test_refused(case: str):
    text, field, words = REFUSED[case]
    found = errors(text)
    assert [p.field for p in found] == [field]
    assert words in found[0].message
    assert found[0].file == "p.yaml"
    assert found[0].document == 1
    assert found[0].line is not None


WARNED = {
    "a missing flavor": ([queue(group())], "spec.resourceGroups[0].flavors[0].name", 'no ResourceFlavor "f"'),
    "a misspelt flavor": ([queue(group(flavor="crad")), flavor("card")], "spec.resourceGroups[0].flavors[0].name", 'did you mean "card"?'),
    "a missing check": ([queue("admissionChecks: [a]")], "spec.admissionChecksStrategy", 'no AdmissionCheck "a"'),
    "a check on another flavor": ([queue("admissionChecksStrategy: {admissionChecks: [{name: a, onFlavors: [z]}]}"), obj("AdmissionCheck", "a", "spec: {controllerName: c}")], "spec.admissionChecksStrategy.admissionChecks[0].onFlavors", "in no resource group"),
    "a missing cluster queue": ([obj("LocalQueue", "l", "spec: {clusterQueue: qq}"), queue()], "spec.clusterQueue", 'no ClusterQueue "qq"'),
    "a missing namespace": (["apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: l, namespace: team}\nspec: {clusterQueue: q}\n", queue()], "metadata.namespace", 'no Namespace "team"'),
    "nobody may use it": ([obj("ClusterQueue", "q")], "spec.namespaceSelector", "no namespace may use this queue"),
    "a cohort that is its own parent": ([obj("Cohort", "c", "spec: {parentName: c}")], "spec.parentName", "c -> c"),
    "a namespace where none belongs": (["apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: f, namespace: n}\n"], "metadata.namespace", "belongs to no namespace"),
    "admission fair sharing": ([queue("admissionScope: {admissionMode: UsageBasedAdmissionFairSharing}")], "spec.admissionScope", "no effect"),
    "a configuration for clusters": (["apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\nintegrations: {frameworks: [batch/job]}\n"], "integrations", "no effect"),
    "block admission": (["apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\nwaitForPodsReady: {enable: true, blockAdmission: true}\n"], "waitForPodsReady.blockAdmission", "no effect"),
    "a count that nobody keeps": ([obj("ResourceQuota", body="spec: {hard: {pods: 4}}", version="v1")], "spec.hard.pods", "no effect"),
    "limits of pods": ([obj("LimitRange", body="spec: {limits: [{type: Pod, max: {cpu: 1}}]}", version="v1")], "spec.limits[0]", "no effect"),
    "preemptionPolicy": ([obj("PriorityClass", body="value: 1\npreemptionPolicy: Never", version="scheduling.k8s.io/v1")], "preemptionPolicy", "no effect"),
}  # fmt: skip


@pytest.mark.parametrize("case", WARNED, ids=WARNED)
def test_accepted_with_a_warning(case: str):
    texts, field, words = WARNED[case]
    found = warnings(*texts)
    assert [(p.field, p.severity) for p in found] == [(field, "warning")]
    assert words in found[0].message
    assert found[0].line is not None


def test_a_cycle_of_cohorts_is_told_at_each_of_them():
    found = warnings(
        obj("Cohort", "a", "spec: {parentName: b}"),
        obj("Cohort", "b", "spec: {parentName: c}"),
        obj("Cohort", "c", "spec: {parentName: a}"),
        obj("Cohort", "outside", "spec: {parentName: a}"),
    )
    assert [p.document for p in found] == [1, 2, 3]
    assert "a -> b -> c -> a" in found[0].message


def test_a_cohorts_lending_limit_may_exceed_its_quota():
    reading = read(
        flavor(), obj("Cohort", "c", "spec: {parentName: r, " + group("nominalQuota: 1, lendingLimit: 5") + "}")
    )
    assert reading.problems == ()


def test_twins_are_refused_and_the_first_is_named():
    found = errors(flavor(), flavor(), obj("LocalQueue", "l", "spec: {clusterQueue: q}"))
    assert [(p.document, p.message) for p in found] == [(2, 'ResourceFlavor "f" is already in p.yaml:1; keep one')]


def test_only_one_configuration_and_one_global_default():
    config = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    default = "value: 1\nglobalDefault: true"
    found = errors(
        config, config,
        obj("PriorityClass", "a", default, version="scheduling.k8s.io/v1"),
        obj("PriorityClass", "b", default, version="scheduling.k8s.io/v1"),
    )  # fmt: skip
    assert [p.document for p in found] == [2, 4]
    assert '"a" in p.yaml' in found[1].message


def test_all_problems_of_all_documents_come_out_together_in_order():
    found = errors(
        queue("cohrt: a", "stopPolicy: Stop", group("nominalQuota: 4, lendingLimit: 5")),
        obj("Nonsense"),
        obj("WorkloadPriorityClass", body="value: x"),
    )
    assert [(p.document, p.field) for p in found] == [
        (1, "spec.cohrt"),
        (1, "spec.stopPolicy"),
        (1, "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit"),
        (1, "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit"),
        (2, "kind"),
        (3, "value"),
    ]
