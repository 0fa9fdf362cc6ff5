"""NVIDIA GPUs.  `device` is the daemon's side, `agent` a process per GPU that calls the driver, `link` is between them.

A lane or bank is a list of extents: memory that the agent makes, as file descriptors.  How they reach jobs, and how
jobs let go of them, stands in ``native/abi/seat.h`` (EXTENT, CUT); the daemon's side is `daemon.memory.extents`.

Not yet run on a GPU.
"""
