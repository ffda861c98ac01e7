"""What holds in every room: how long an example takes says how busy the machine is, and nothing of what is tested."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")
