"""Workers: starting them as jobs of the daemon, talking to them, replacing those that died.

One `Pool` per environment (interpreter, directory, variables).  May import `prepare` and below, and the protocol; loads
no framework.
"""
