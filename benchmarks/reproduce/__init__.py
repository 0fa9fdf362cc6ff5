"""Published figures beside what the simulator says: ``python -m benchmarks.reproduce``; see reproductions.md there."""
