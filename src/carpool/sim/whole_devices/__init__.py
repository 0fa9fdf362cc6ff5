"""Modelled jobs that have devices to themselves.

The counterpart of `sim/jobs` without lanes.
"""
