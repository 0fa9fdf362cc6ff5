"""Names that programs, nodes and Ray's agents share."""

from __future__ import annotations

#: The field of a runtime environment that `carpool.ray.plugin` understands.
FIELD = "carpool"
#: The custom resource of a node; its amount is the number of processes that may share the node's devices.
RESOURCE = "carpool"
#: The variable by which Ray's agent of a node finds plugins: a JSON list of objects with the path of a class.
PLUGINS, CLASS = "RAY_RUNTIME_ENV_PLUGINS", "carpool.ray.plugin.CarpoolPlugin"
