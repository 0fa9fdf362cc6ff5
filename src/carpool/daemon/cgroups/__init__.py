"""Control groups: where the daemon may make them, one for each job, and the limits of processes and of host memory.

Everything that is done to a group is done here, so that it can be handed to another process with more rights.  Imports
`jobs` and `system`.
"""
