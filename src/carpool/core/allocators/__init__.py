"""How a device's memory is divided: whole devices, or lanes.

The machine selects one allocator when it is made.
"""
