"""The channels of jobs: packets in and out, attaching, secondary processes.

The entrance for everything that a job says.  Imports `memory`, `seats`, `jobs` and `system`; knows no shim.
"""
