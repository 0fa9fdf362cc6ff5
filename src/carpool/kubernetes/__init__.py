"""Devices of a daemon for Kubernetes: shares that the device plugin gives to containers, and `dra`, the DRA driver.

Only code for the APIs of the kubelet and the API server belongs here; ``v1beta1`` is the device plugin's, generated.
The package needs grpcio (the extra ``k8s``), so only `carpool k8s` imports it.  May import the protocol, the options of
jobs and the core's values.
"""
