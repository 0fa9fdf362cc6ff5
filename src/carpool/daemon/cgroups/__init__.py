"""Control groups: where the daemon may make them, one for each job, and the limits of processes and of host memory.

All operations on groups are here, so that they can be handed to another process with more rights.  Imports `jobs` and
`system`.
"""
