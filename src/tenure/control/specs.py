"""Specs and environments by digest: parsed once, shared by every task of an array."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping

from tenure.domain.job import JobSpec
from tenure.ledger import JobRow, Ledger
from tenure.manifests.wire import spec_from_json

__all__ = ["SpecStore"]

KEPT_SPECS = 2048
KEPT_ENVIRONMENTS = 16  # an environment may be a megabyte


class SpecStore:
    """A bounded memory in front of the ledger.  Values never change under their digest."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._specs: OrderedDict[str, JobSpec] = OrderedDict()
        self._environments: OrderedDict[str, Mapping[str, str]] = OrderedDict()

    def of(self, row: JobRow) -> JobSpec:
        return self.by_digest(row.spec_digest)

    def by_digest(self, digest: str) -> JobSpec:
        spec = self._specs.get(digest)
        if spec is None:
            body = self._ledger.spec(digest)
            spec = spec_from_json(json.loads(body) if isinstance(body, str) else body)
            self.keep(digest, spec)
        return spec

    def keep(self, digest: str, spec: JobSpec) -> None:
        self._specs[digest] = spec
        while len(self._specs) > KEPT_SPECS:
            self._specs.popitem(last=False)

    def environment(self, digest: str | None) -> Mapping[str, str]:
        if digest is None:
            return {}
        found = self._environments.get(digest)
        if found is None:
            found = {str(k): str(v) for k, v in (self._ledger.environment(digest) or {}).items()}
            self._environments[digest] = found
            while len(self._environments) > KEPT_ENVIRONMENTS:
                self._environments.popitem(last=False)
        return found
