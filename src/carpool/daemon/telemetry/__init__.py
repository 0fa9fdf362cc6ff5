"""Readings of devices and processes on their way to the core, the journal and the API.

Threads read, the event loop receives.  Imports `journal`, `seats`, `jobs` and `system`, and the devices.
"""
