"""Ray: what makes a task, an actor, a trial or a replica a job of the Carpool daemon of its node.

`environment` is for programs that use Ray, `node` is for starting a node, `plugin` runs in Ray's agent of each node.
Only `plugin` imports Ray; nothing of Carpool imports this package.
"""

from __future__ import annotations

from carpool.ray.environment import RESOURCE, BadOption, RayJobOptions, options, runtime_env
from carpool.ray.node import NodeNotReady, node_resources, node_variables, prepare_node

__all__ = [
    "BadOption",
    "RayJobOptions",
    "NodeNotReady",
    "RESOURCE",
    "node_resources",
    "node_variables",
    "options",
    "prepare_node",
    "runtime_env",
]
