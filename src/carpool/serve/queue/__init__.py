"""Requests between the endpoint and the workers: queues, batches, deadlines, and the choice of a worker.

`batching` and `running_median` are pure (the simulator uses them, too).  May import `pool` and below, and `metrics`;
loads no framework.
"""
