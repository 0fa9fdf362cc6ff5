"""A model in memory: its structure, weights, profile, and calling convention.

Code that works on modules and tensors belongs here.  Most of it loads PyTorch and runs in workers and preparers only;
`image_store`, `native_groups`, `seat_device` and `weights_device` do not need PyTorch.  May import `wire`
and below, the protocol, `carpool.devices` and `carpool.runtime`.
"""
