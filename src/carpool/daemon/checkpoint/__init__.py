"""Jobs of the checkpoint engine: suspended by the driver between their turns.

Imports `jobs`, `seats` and the devices.
"""
