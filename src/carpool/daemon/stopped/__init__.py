"""Processes that somebody has stopped (SIGSTOP): noticing them, and taking their memory.

Imports `jobs`, `seats` and `system`.
"""
