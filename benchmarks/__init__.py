"""What is fast, and how we know.  ``python -m benchmarks`` runs everything and writes a dated result file."""
