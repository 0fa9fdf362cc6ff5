"""The device plugin for Kubernetes: devices of a daemon as shares that the kubelet gives to containers.

Enters what speaks the kubelet's API; ``v1beta1`` is that API, generated.  Needs grpcio (the extra ``k8s``), so only
`carpool k8s` imports it.  May import the protocol and the core's values.
"""
