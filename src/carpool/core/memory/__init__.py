"""Which job has which memory: grants, lanes, waiters, eviction, and what breaks a deadlock.

May import turns and everything below.
"""
