"""Inference services beside the jobs of a trace: a front with queues of requests, and modelled workers.

`toml_file` reads the description of services (`sim.model.served_models`), `front` queues and batches, `workers` carry
out the core's commands, `weight_copies` models the copying of weights to a device, `sim.model.served_models` and
`summary` hold the results.
"""
