"""Inference services beside the jobs of a trace: a front with queues of requests, and modelled workers.

`spec` says what is served, `file` reads that, `front` queues and batches, `workers` do what the core says, `copies` is
the way of weights to a device, `result` and `summary` hold what came of it.
"""
