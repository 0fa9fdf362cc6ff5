"""Published figures beside what the simulator says: ``python -m benchmarks.reproduce``; docs/reproductions.md explains."""
