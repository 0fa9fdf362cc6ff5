"""Memory by grant: what the core grants becomes descriptors, transfers, and pages that are reclaimed.

Imports `seats`, `jobs` and `system`, and the devices; `channels` passes in the functions that send packets.
"""
