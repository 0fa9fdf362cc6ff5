"""Memory by grant: what the core grants becomes descriptors, transfers, and pages that come back.

Imports `seats`, `jobs` and the devices.
"""
