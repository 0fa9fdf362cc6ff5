"""Output of results: summaries and tables of jobs.

Reads results only.
"""
