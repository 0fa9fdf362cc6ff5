"""Modelled jobs in lanes: progress, turns, pauses, memory.

Modelled jobs react to the core's commands as real jobs do.
"""
