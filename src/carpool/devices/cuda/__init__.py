"""NVIDIA GPUs.  `device` is the daemon's side, `agent` a process per GPU that calls the driver, `link` is between them.

How lanes and banks of several extents are to reach jobs and shims (a proposal: nothing sends these yet, and with one
file everything stays as it is):

- Packet ``EXTENT`` to the job, one per extent, after SETUP, LANE or BANK and whenever one is added.  a: number of the
  lane or bank, b: class (0 bank, 1 lane), c: offset, d: size, e: how many more follow; one descriptor.  One packet per
  extent, because descriptors of device memory do not tell their size and a packet has no room for a list.
- Packet ``CUT`` to the job: a, b as above, c: the new end.  The job unmaps what lies beyond and answers ``CUT_DONE``
  with the same a, b, c.  Memory is free only when all jobs of the lane have answered or are gone, so the daemon tells
  the core not earlier; a lane is cut before the device gives up its own descriptors.
- Seat words ``lane_seq`` and ``bank_seq`` (daemon), raised with every such packet: the job takes packets from its
  channel before it opens its gate until it has seen as many, as it does today for ``lane`` and ``bank``.
- A job that has been offloaded unmaps its bank before it answers OFFLOADED: else a free bank could not be emptied.
- Names under which shims keep them: ``lane:<lane>:<offset>:<size>``, ``bank:<device>:<bank>:<offset>:<size>``, at most
  16 in one ``keep``; ``register`` comes in as many messages as it needs (``more: true`` in all but the last).
- A stopped job's memory is taken by the daemon (`CudaDevice.copy_out` in a thread, under the mover's lock), not by the
  shim, which has no context.

Not yet run on a GPU.
"""
