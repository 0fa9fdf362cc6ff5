"""Processes that a user has stopped (SIGSTOP): noticing them, and moving their memory.

Imports `seats`, `jobs`, `journal` and `system`; code that asks a job for something enters the job in `jobs.watchlist`.
"""
