"""Jobs from Python: `carpool.submit`, `carpool.map`, `carpool.Job`, which the package `carpool` loads on first use.

`submitting` and `handle` run in the user's program and use the command line's own requests and client.  `transport` and
`__main__` also run in the job: standard library only.  A function travels as a pickle in a directory of its user.
"""
