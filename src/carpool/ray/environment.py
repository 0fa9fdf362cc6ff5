"""The runtime environment and options that a program gives to Ray, so that a worker process is a job.

Names that programs, nodes and Ray's agents share.
"""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

import msgspec

from carpool.options.table import from_python, request_fields
from carpool.protocol.session import JoinOptions

#: The field of a runtime environment that `carpool.ray.plugin` understands.
FIELD = "carpool"
#: The custom resource of a node; its amount is the number of processes that may share the node's devices.
RESOURCE = "carpool"
#: The variable by which Ray's agent of a node finds plugins: a JSON list of objects with the path of a class.
PLUGINS, CLASS = "RAY_RUNTIME_ENV_PLUGINS", "carpool.ray.plugin.CarpoolPlugin"


class BadOption(ValueError):
    """An option that no job can have; the text names the option and the reason."""


class RayJobOptions(TypedDict, total=False):
    """Options of `carpool env`, by their names.

    ``memory`` as in "300MiB/1GiB" (persistent/ephemeral), ``expect`` and ``time`` as in "90s" or "2h".
    """

    name: str
    memory: str
    weight: int
    iterations: int
    expect: str
    time: str
    device: str
    exclusive: bool


def runtime_env(others: dict[str, Any] | None = None, /, **job: Unpack[RayJobOptions]) -> dict[str, Any]:
    """Return a runtime environment whose workers are jobs of the Carpool daemon of the node on which each worker runs.

    ``others``: further fields of the environment, as in ``{"env_vars": {"SEED": "1"}}``.  A worker joins when it uses
    its device for the first time, and its job ends with its process.  Raises BadOption.
    """
    fields = msgspec.to_builtins(_join_options(job))
    return {**(others or {}), FIELD: fields}


def options(
    others: dict[str, Any] | None = None, /, *, shares: float = 1, **job: Unpack[RayJobOptions]
) -> dict[str, Any]:
    """Return keywords for ``ray.remote(**options())`` and ``.options(**options())``: environment and device shares.

    Only nodes that have been prepared for Carpool have shares (`carpool.ray.node`).  Raises BadOption.
    """
    return {"runtime_env": runtime_env(others, **job), "resources": {RESOURCE: shares}}


def _join_options(job: RayJobOptions) -> JoinOptions:
    """Convert the keywords to `JoinOptions`.  Raises BadOption."""
    if unknown := sorted(set(job) - set(RayJobOptions.__annotations__)):
        known = ", ".join(RayJobOptions.__annotations__)
        raise BadOption(f"there is no option {unknown[0]!r}; the options: {known}")
    try:
        return JoinOptions(**request_fields(from_python(job)))
    except ValueError as error:
        raise BadOption(f"{error}") from None
