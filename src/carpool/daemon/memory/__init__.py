"""Memory by grant: what the core grants becomes descriptors, transfers, and pages that come back.

Imports `seats`, `jobs` and `system`, and the devices; hears of packets from `channels`, which hands in how to send some.
"""
