"""All that crosses a process boundary: the daemon's HTTP API and its client, messages of shims, seats, names of files.

A definition that two processes must agree on belongs here.  Everything but the core may import this package; it imports
nothing else of Carpool, at most the core's values.  `lacking`, `packets` and `records` also run in interpreters of jobs
and models: standard library only.
"""
