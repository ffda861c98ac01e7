"""The local backend keeps the contract of all backends."""

from __future__ import annotations

from tenure.testing.backend_contract import BackendContract


class TestLocalBackend(BackendContract):
    pass
