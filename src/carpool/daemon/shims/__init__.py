"""Shims: starting them, their sessions, their ends, and when a job is started again.

Imports `channels`, to which it hands what shims bring, `journal`, `seats`, `jobs` and `system`.
"""
