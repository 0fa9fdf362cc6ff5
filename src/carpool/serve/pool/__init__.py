"""Workers: starting them as jobs, talking to them, replacing them.

May import `prepare` and below; loads no framework.
"""
