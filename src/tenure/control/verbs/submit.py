"""Submit: one transaction for the jobs, their events and the answer to the idempotency key; then the loop hears of it.

In two steps, because doors that many come through write together (`control.intake`): `prepared` finds out what is wrong
with a request by itself, `answer` is what its submitter is told once it is written.
"""

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
from tenure.ledger import JobRow
from tenure.manifests.caps import check_limits, with_defaults
from tenure.manifests.rules import check_spec
from tenure.sdk.fingerprint import fingerprint

from ..caller import Caller
from ..intake import Fate, Groups, Key, Submission, write
from ..lookup import rows_of
from ..namings import priority_of, queue_of, uncounted
from ..submission import asked_of, environment_of, field_of
from ..views.jobs import array_json, job_json
from ..window_rule import for_window
from ..workloads import pod_requests

if TYPE_CHECKING:
    from ..app import Platform

__all__ = ["answer", "prepared", "submit", "submit_specs"]


def submit(
    platform: Platform, body: Mapping[str, Any], *, caller: Caller, idempotency_key: str | None = None
) -> dict[str, Any]:
    """Take a JobSubmission.  The answer is the job, the array, or `{"jobs": [...]}` where a file held several.

    The same key with the same body gives the same answer and makes nothing new; with another body it raises Conflict.
    Raises InvalidRequest, with the field and what would work, before anything is written.
    """
    submission = prepared(platform, body, caller=caller, idempotency_key=idempotency_key)
    (fate,) = write(platform, [submission])
    return answer(submission, fate)


def submit_specs(
    platform: Platform, specs: Sequence[JobSpec], *, env_digest: str | None, retry_of: Sequence[JobId | None]
) -> Groups:
    """Jobs that are complete already (a retry): each spec its own, linked to the job it replaces."""
    codes = [fingerprint(spec.workdir, _files(spec)) for spec in specs]
    submission = Submission(specs=specs, codes=codes, at=platform.clock.now(), env_digest=env_digest, retry_of=retry_of)
    (fate,) = write(platform, [submission])
    return _made(fate)


def prepared(
    platform: Platform, body: Mapping[str, Any], *, caller: Caller, idempotency_key: str | None = None
) -> Submission:
    """The request, read and checked.  Reads the job's working tree, so it takes as long as that takes."""
    request = {k: v for k, v in body.items() if k != "environment"}
    key = None
    if idempotency_key is not None:
        if not 1 <= len(idempotency_key) <= 255:
            raise InvalidRequest("an idempotency key has 1 to 255 characters", field="Idempotency-Key")
        # Without the environment: whoever comes back after a connection broke has another port in SSH_CLIENT.
        digest = hashlib.sha256(json.dumps(request, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
        key = Key(scope=f"submit:{caller.user}", name=idempotency_key, digest=digest)
    environment = environment_of(body)
    asked = asked_of(request, now=platform.clock.now(), owner=caller.user)
    specs = [_settle(platform, spec) for spec in asked.specs]
    exported = asked.exported(environment)
    prints = {spec.workdir: fingerprint(spec.workdir, _files(spec)) for spec in specs}
    codes = [prints[spec.workdir] for spec in specs]
    return Submission(specs=specs, codes=codes, at=platform.clock.now(), environment=exported, key=key)


def answer(submission: Submission, fate: Fate) -> dict[str, Any]:
    """Raises what the writing was refused with."""
    answers = []
    for rows, spec in zip(_made(fate), submission.specs, strict=True):
        one = array_json(rows) if spec.array is not None else job_json(rows[0], spec)
        answers.append({**one, "notes": list(spec.notes)})
    return answers[0] if len(answers) == 1 else {"jobs": answers}


def _made(fate: Fate) -> Sequence[Sequence[JobRow]]:
    if isinstance(fate, Exception):
        raise fate
    return fate


def _settle(platform: Platform, spec: JobSpec) -> JobSpec:
    """What the platform knows and the job does not say: its queue, and how much a whole card is."""
    policy = platform.policy.current
    if spec.whole and not spec.gpu_memory and platform.cards:
        spec = replace(spec, gpu_memory=min(card.memory for card in platform.cards))
    spec = with_defaults(spec, policy.limit_ranges)
    queue = queue_of(policy, spec)
    spec = spec if spec.queue == queue else replace(spec, queue=queue)
    priority_of(policy, spec)
    try:
        check_spec(spec)
    except InvalidRequest as error:
        raise InvalidRequest(error.message, field=field_of(error.field), code=error.code) from None
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
