"""What the platform costs: one module a figure, peers in the same run, `python -m benchmarks`."""
