"""Seats, the records that the daemon shares with each job: handing them out, reading and writing them.

No value read from a seat chooses a descriptor, an owner or a limit.  Imports `jobs` and `system`, and the devices.
"""
