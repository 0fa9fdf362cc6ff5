"""Shims: starting them, their sessions, their ends, and when a job is started again.

Imports `jobs` and `system`.
"""
