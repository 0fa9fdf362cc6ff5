"""Inference services: the user's own front, which answers requests for models (`docs/inference.md`)."""
