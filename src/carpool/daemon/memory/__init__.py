"""Memory by grant: what the core grants becomes descriptors, transfers, and pages that come back.

Imports `seats`, `jobs` and `system`, and the devices; `channels` hands in what sends packets.
"""
