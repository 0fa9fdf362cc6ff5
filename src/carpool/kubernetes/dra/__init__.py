"""The DRA driver: devices as ResourceSlices, and claims of pods as CDI files of what lets their processes join.

`claims` reads a claim, `cdi` keeps what was prepared of it, `driver` answers the kubelet, `slices` tells the API
server of devices, and `agent` runs them.
"""
