"""`srun` inside an #SBATCH script: starts the tasks of one step."""

from __future__ import annotations


def main() -> int:
    raise SystemExit("srun: not yet")
