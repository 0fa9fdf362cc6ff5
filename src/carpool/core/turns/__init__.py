"""Which job computes now: turns of a lane, their end, turns of a whole device, services and their weights.

May import metering, state, policies and the vocabulary.
"""
