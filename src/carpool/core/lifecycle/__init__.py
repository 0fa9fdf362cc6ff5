"""A job's life: the table of its phases, what is legal, retries, adoption after a restart, invariants.

May import placement and everything below.
"""
