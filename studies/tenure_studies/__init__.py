"""Experiments.  Each module is one study: `python -m tenure_studies.NAME --help`."""
