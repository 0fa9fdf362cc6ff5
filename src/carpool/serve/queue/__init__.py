"""Requests in queues, batches, and which worker gets them.

May import `pool` and below.
"""
