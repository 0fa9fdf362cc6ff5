"""Shims: starting them, their sessions, their ends, and when a job is started again.

Imports `channels`, to which descriptors from shims are handed, `journal`, `seats`, `jobs` and `system`.
"""
