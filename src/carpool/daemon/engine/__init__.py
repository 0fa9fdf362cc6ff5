"""Which engine runs a job: what its executable is, and whether libcarpool can be preloaded into it.

Reads files only.
"""
