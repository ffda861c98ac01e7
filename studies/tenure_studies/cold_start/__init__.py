"""How long a cold caller waits for a language model, and for what: `python -m tenure_studies.cold_start --help`."""

from .study import Spec, cold_start

__all__ = ["Spec", "cold_start"]
