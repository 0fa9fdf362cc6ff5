"""Modelled jobs in lanes: progress, turns, pauses, memory.

They react to the core's commands as real jobs do.
"""
