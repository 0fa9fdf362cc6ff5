"""The channels of jobs: packets in and out, attaching, secondary processes.

Everything that a job says comes in here.  Imports `memory`, `seats`, `jobs` and `system`; knows no shim.
"""
