"""NVIDIA GPUs.  `device` is the daemon's side, `agent` a process per GPU that calls the driver, `agent_link` between.

A lane or bank is a list of extents: memory that the agent makes, as file descriptors.  How extents reach jobs, and
how jobs unmap them, is in ``src/native/abi/seat.h`` (EXTENT, CUT); the daemon's side is `daemon.memory.extents`.

Not yet run on a GPU.
"""
