"""Submit: one transaction for the jobs, their events and the answer to the idempotency key; then the loop hears of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenure.domain.errors import InvalidRequest, NotFound
from tenure.domain.ids import JobId
from tenure.domain.job import JobSpec
from tenure.ledger import JobRow, NewJob, Transaction
from tenure.manifests.caps import check_limits, with_defaults
from tenure.manifests.rules import check_spec
from tenure.manifests.wire import spec_to_json
from tenure.sdk.fingerprint import fingerprint

from ..caller import Caller
from ..caps import check_caps
from ..lookup import rows_of
from ..namings import priority_of, queue_of, uncounted
from ..submission import asked_of
from ..views.jobs import array_json, job_json
from ..window_rule import for_window
from ..workloads import pod_requests

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["submit", "submit_specs"]


def submit(
    platform: Platform, body: Mapping[str, Any], *, caller: Caller, idempotency_key: str | None = None
) -> dict[str, Any]:
    """Take a JobSubmission.  The answer is the job, the array, or `{"jobs": [...]}` where a file held several.

    The same key with the same body gives the same answer and makes nothing new; with another body it raises Conflict.
    Raises InvalidRequest, with the field and what would work, before anything is written.
    """
    scope = f"submit:{caller.user}"
    if idempotency_key is not None:
        if not 1 <= len(idempotency_key) <= 255:
            raise InvalidRequest("an idempotency key has 1 to 255 characters", field="Idempotency-Key")
        digest = hashlib.sha256(json.dumps(body, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
    environment = body.get("environment")
    if environment is not None and not isinstance(environment, Mapping):
        raise InvalidRequest("environment must be an object of names and values", field="environment")
    request = {k: v for k, v in body.items() if k != "environment"}
    asked = asked_of(request, now=platform.clock.now(), owner=caller.user)
    specs = [_settle(platform, spec) for spec in asked.specs]
    exported = asked.exported({str(k): str(v) for k, v in environment.items()}) if environment else {}
    prints = {spec.workdir: fingerprint(spec.workdir, _files(spec)) for spec in specs}
    at = platform.clock.now()

    def work(tx: Transaction) -> tuple[list[list[JobRow]], str | None]:
        if idempotency_key is not None:
            known = tx.idempotent(scope, idempotency_key, digest)
            if known is not None:
                return [], known
        check_caps(platform, tx, specs)
        env_digest = tx.put_environment(exported, at) if exported else None
        groups = []
        for spec in specs:
            new = _new_jobs(platform, tx, spec, env_digest=env_digest, code=prints[spec.workdir])
            groups.append(tx.add_jobs(new, at))
        if idempotency_key is not None:
            tx.remember(scope, idempotency_key, digest, json.dumps([[r.id for r in rows] for rows in groups]), at)
        return groups, None

    with platform.ledger.transaction(durable=True) as tx:
        groups, known = work(tx)
    if known is not None:
        groups = [[platform.ledger.job(job) for job in ids] for ids in json.loads(known)]
    else:
        for rows, spec in zip(groups, specs, strict=True):
            platform.specs.keep(rows[0].spec_digest, spec)
            platform.conductor.submitted(rows, [spec] * len(rows))
    return _answer(groups, specs)


def submit_specs(
    platform: Platform, specs: Sequence[JobSpec], *, env_digest: str | None, retry_of: Sequence[JobId | None]
) -> list[list[JobRow]]:
    """Jobs that are complete already (a retry): each spec its own, linked to the job it replaces."""
    at = platform.clock.now()
    groups: list[list[JobRow]] = []
    with platform.ledger.transaction(durable=True) as tx:
        check_caps(platform, tx, specs)
        for spec, before in zip(specs, retry_of, strict=True):
            code = fingerprint(spec.workdir, _files(spec))
            new = _new_jobs(platform, tx, spec, env_digest=env_digest, code=code)
            groups.append(tx.add_jobs([replace(job, retry_of=before) for job in new], at))
    for rows, spec in zip(groups, specs, strict=True):
        platform.conductor.submitted(rows, [spec] * len(rows))
    return groups


def _settle(platform: Platform, spec: JobSpec) -> JobSpec:
    """What the platform knows and the job does not say: its queue, and how much a whole card is."""
    policy = platform.policy.current
    if spec.whole and not spec.gpu_memory and platform.cards:
        spec = replace(spec, gpu_memory=min(card.memory for card in platform.cards))
    spec = with_defaults(spec, policy.limit_ranges)
    spec = replace(spec, queue=queue_of(policy, spec))
    priority_of(policy, spec)
    check_spec(spec)
    check_limits(spec, pod_requests(spec, platform.cards), policy.limit_ranges)
    for dependency in spec.after:
        try:
            rows_of(platform.ledger, dependency.job)
        except NotFound as error:
            raise InvalidRequest(f"after: {error.message}", field="after") from None
    ignored = uncounted(policy, spec, pod_requests(spec, platform.cards))
    if ignored:
        queue = policy.local_queues[spec.namespace, spec.queue or "default"].cluster_queue
        note = f"{', '.join(ignored)}: ClusterQueue {queue} has no quota for it, so nobody counts it"
        spec = replace(spec, notes=(*spec.notes, note))
    return for_window(spec, platform.cards) if spec.window else spec


def _new_jobs(
    platform: Platform, tx: Transaction, spec: JobSpec, *, env_digest: str | None, code: Mapping[str, object]
) -> list[NewJob]:
    policy = platform.policy.current
    number = tx.next_job_number()
    priority, class_name = priority_of(policy, spec)
    queue = policy.local_queues[spec.namespace, spec.queue or "default"]
    base = NewJob(
        id=JobId(str(number)),
        name=spec.name,
        spec=json.dumps(spec_to_json(spec), sort_keys=True, ensure_ascii=True),
        project=spec.project,
        namespace=spec.namespace,
        owner=spec.owner,
        queue=queue.name,
        cluster_queue=queue.cluster_queue,
        priority_class=class_name,
        priority=priority,
        env_digest=env_digest,
        labels=spec.labels,
        fingerprint=code,
        held=spec.suspended,
        reason="Suspended" if spec.suspended else "PendingEvaluation",
    )
    if spec.array is None:
        return [base]
    return [
        replace(
            base,
            id=JobId(f"{number}_{index}"),
            array_id=base.id,
            array_index=index,
            array_limit=spec.array.limit,
        )
        for index in spec.array.indices
    ]


def _files(spec: JobSpec) -> list[str]:
    """The files that a command line names: what ran, where no version control tells."""
    if spec.script is not None:
        return []
    found = []
    for word in spec.argv[:16]:
        if "\0" not in word and not word.startswith("-") and len(word) < 1024 and ("/" in word or "." in word):
            path = Path(spec.workdir, word)
            try:
                if path.is_file():
                    found.append(str(path))
            except OSError:
                continue
    return found


def _answer(groups: Sequence[Sequence[JobRow]], specs: Sequence[JobSpec]) -> dict[str, Any]:
    answers = []
    for rows, spec in zip(groups, specs, strict=True):
        answer = array_json(rows) if spec.array is not None else job_json(rows[0], spec)
        answers.append({**answer, "notes": list(spec.notes)})
    return answers[0] if len(answers) == 1 else {"jobs": answers}
