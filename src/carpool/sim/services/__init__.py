"""Inference services beside the jobs of a trace: a front with queues of requests, and modelled workers.

`toml_file` reads the description of services (`sim.model.served_models`), `front` queues and batches, and models the
copying of weights, `workers` carry out the core's commands, `sim.model.served_models` and `summary` hold the results.
"""
