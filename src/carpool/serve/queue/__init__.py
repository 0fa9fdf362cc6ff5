"""Requests between the endpoint and the workers: queues, batches, deadlines, and which worker gets a batch.

`batching` and `running_median` are pure (the simulator uses them, too).  May import `pool` and below, and `metrics`;
loads no framework.
"""
