"""What the daemon knows about each live job: the job table, seat tables, files, and state that folders share.

Imports `privileges` and `system` only; every folder that deals with jobs builds on this one.
"""
