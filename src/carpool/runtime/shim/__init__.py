"""The shim: one small process per job, between the daemon and the job's main process, which outlives the daemon.

Standard library only.
"""
