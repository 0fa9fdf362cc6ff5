"""What crosses a process boundary: the daemon's HTTP API and its client, messages of shims, seats, names of files.

Enters what two processes have to agree on.  Everything but the core may import it; it imports nothing else of Carpool,
at most the core's values.  `lacking`, `packets` and `records` run in interpreters of jobs and models as well: standard
library only.
"""
