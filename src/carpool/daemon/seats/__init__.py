"""Seats, the records that the daemon shares with each job: handing them out, reading and writing them.

Imports `jobs` and `system`; decides nothing.
"""
