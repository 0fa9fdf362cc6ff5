"""From options and files to requests: what `submit`, `run` and `model` send.

May import `base` and the protocol.
"""
