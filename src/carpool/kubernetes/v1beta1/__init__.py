"""The kubelet's device plugin API: generated from ``deviceplugin.proto`` by `make k8s-stubs`."""
