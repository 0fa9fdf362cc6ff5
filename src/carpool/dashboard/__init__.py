"""The page that shows a daemon: a process of a user's own, which asks the daemon with that user's rights.

Enters HTTP from a browser on this machine, and the daemon's answers and events; leaves files, JSON and a WebSocket.
May import the protocol and timelines; only `carpool dashboard` imports it.
"""
