"""The division of memory among jobs: grants, lanes, waiters, eviction, and what breaks a deadlock.

May import turns and everything below.
"""
