"""Which engine runs a job: what its executable is, and whether libcarpool can be preloaded into it.

Reads files only, in a thread with the rights of the user.  Imports `shims`, `jobs` and `system`.
"""
