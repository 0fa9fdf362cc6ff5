"""The options of a job as one table: their names, their values, and the fields of a request that they set.

`table` declares each option once.  The options of commands, the keys of job files, the names of `carpool update`, the
lines of scripts, the options of Ray and of notebooks, and the daemon's bounds are made from it.  Imports the protocol.
"""
