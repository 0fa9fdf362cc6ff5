"""The kubelet's API of DRA drivers: generated from the ``.proto`` files here by `make k8s-stubs`."""
