"""What came out: summaries and tables of jobs.

Reads results only.
"""
