"""Published figures beside what the simulator says: ``python -m benchmarks.reproduce``.  See benchmarks/reproductions.md."""
