"""The page that shows a daemon: a process of one user, which asks the daemon with that user's rights.

In come HTTP from a browser on this machine, and the daemon's answers and events; out go files, JSON and a WebSocket.
May import the protocol and facts; only `carpool dashboard` imports it.
"""
