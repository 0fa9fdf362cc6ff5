"""Devices given as a whole: the allocator that takes the place of the core's lanes, and its modelled jobs.

The counterpart of `sim/jobs` without lanes.
"""
