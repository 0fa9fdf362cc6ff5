"""Plain PyTorch scripts that the benchmarks run, bare and as jobs."""
