"""Checkpoint jobs: suspended by the driver between their turns.

Imports `shims`, which run their processes, `jobs` and `system`, and the devices; such jobs have no seat.
"""
