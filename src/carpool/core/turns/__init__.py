"""Turns: those of a lane and of a whole device, their order and their end, services and their weights.

May import metering, state, policies and the vocabulary.
"""
