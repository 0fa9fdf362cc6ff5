"""Seats, the records that the daemon shares with each job: handing them out, reading and writing them.

Nothing read from a seat chooses a descriptor, an owner or a limit.  Imports `jobs` and `system`, and the devices.
"""
