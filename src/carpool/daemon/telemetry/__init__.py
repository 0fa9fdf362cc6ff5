"""Readings of devices and processes on their way to the core, the journal and the API.

A thread reads, the loop receives.
"""
