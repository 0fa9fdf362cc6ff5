"""A model in memory: its structure, weights, profile, and how it is called.

Enters what works on modules and tensors.  Most of it loads PyTorch and runs in workers and preparers only; without
PyTorch are `image_store`, `link_cost`, `native_groups`, `seat_device` and `weights_device`.  May import `wire` and
below, the protocol, `carpool.devices` and `carpool.runtime`.
"""
