"""The names that programs, nodes and Ray's agents have in common."""

from __future__ import annotations

#: The field of a runtime environment that `carpool.ray.plugin` understands.
FIELD = "carpool"
#: The custom resource of a node, of which there are as many as processes may share its devices.
RESOURCE = "carpool"
#: By which variable Ray's agent of a node finds plugins: a JSON list of objects with the path of a class.
PLUGINS, CLASS = "RAY_RUNTIME_ENV_PLUGINS", "carpool.ray.plugin.CarpoolPlugin"
