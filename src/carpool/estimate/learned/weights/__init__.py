"""Results of training, as files that `benchmarks/estimators` writes."""
