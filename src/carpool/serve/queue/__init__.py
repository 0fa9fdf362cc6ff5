"""Requests between the endpoint and the workers: queues, batches, deadlines, and the choice of a worker.

`batching` is pure (the simulator uses it, too).  May import `pool` and below, and `metrics`;
loads no framework.
"""
