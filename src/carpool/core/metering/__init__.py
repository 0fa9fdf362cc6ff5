"""Measurements of the core: use of devices, co-runners, the cost of transfers; and the views that policies see.

This package reads the state, changes only its counters, and decides nothing.
"""
