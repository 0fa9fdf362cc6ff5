"""The device plugin for Kubernetes: devices of a daemon as shares that the kubelet gives to containers.

Only code for the kubelet's API belongs here; ``v1beta1`` is that API, generated.  The package needs grpcio (the extra
``k8s``), so only `carpool k8s` imports it.  May import the protocol and the core's values.
"""
