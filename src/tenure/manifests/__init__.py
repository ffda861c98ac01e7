"""The readers: users' files in, domain values out.

Kueue's objects, Kubernetes' Job and Slurm's `#SBATCH` lines, as their users write them.  Every problem names file,
document, line and field, all problems of a file are told at once, and what is understood but has no effect on one
machine is named, never silently dropped.  Nothing here knows a ledger, an engine or a backend.
"""
