"""Processes that somebody has stopped (SIGSTOP): noticing them, and taking their memory.

Imports `seats`, `jobs`, `journal` and `system`; whoever asks a job for something enters it in `jobs.watchlist`.
"""
