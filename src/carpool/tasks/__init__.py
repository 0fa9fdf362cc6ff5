"""Jobs from Python: `carpool.submit`, `carpool.map`, `carpool.Job`, which the package `carpool` loads when needed.

`submitting` and `handle` run in the user's program and use the command line's own requests and client.  `transport` and
`__main__` run in the job, too: standard library only.  A function travels as a pickle in a directory of its user's.
"""
