"""What training has learned, as files that `benchmarks/estimators` writes."""
