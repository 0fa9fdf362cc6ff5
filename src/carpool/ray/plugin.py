"""The plugin of Ray's agent of a node: sets the variables by which a starting worker joins the node's daemon.

The node decides which daemon, which socket and which GPU; a program only states what its jobs need.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import msgspec
from ray._private.runtime_env.plugin import RuntimeEnvPlugin

from carpool.cli.base.cli_error import Problem
from carpool.cli.request.joining import variables_for
from carpool.protocol.client import ClientError, DaemonClient
from carpool.protocol.environment import JOIN, OPTIONS
from carpool.protocol.paths import default_home
from carpool.protocol.session import JoinOptions
from carpool.ray.environment import FIELD
from carpool.ray.node import NodeNotReady

#: Older versions of Ray hide all GPUs from workers without `num_gpus`; a job would take that for its script's choice.
GPUS_STAY = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}


class CarpoolPlugin(RuntimeEnvPlugin):  # type: ignore[misc]  # Ray's types are not checked
    """The plugin that Ray's agent loads.  A program sees a failure here as a task or an actor that cannot start."""

    name = FIELD
    priority = 100  # run last: other plugins set paths of Python, too

    @staticmethod
    def validate(runtime_env_dict: dict[str, Any]) -> None:
        """Check the field of a runtime environment.  Raises ValueError."""
        msgspec.convert(runtime_env_dict[FIELD], JoinOptions)

    def modify_context(self, uris: list[str], runtime_env: Any, context: Any, logger: logging.Logger) -> None:
        """Add the variables to the worker's context.  Raises NodeNotReady; the worker then does not start."""
        wanted = msgspec.convert(runtime_env[FIELD], JoinOptions)
        context.env_vars = {**context.env_vars, **variables_here(wanted, {**os.environ, **context.env_vars})}


def variables_here(wanted: JoinOptions, env: dict[str, str]) -> dict[str, str]:
    """Return the joining variables for a process that starts with ``env``.

    The node decides which daemon the process joins, not ``env``.  Raises NodeNotReady.
    """
    if "CARPOOL_JOB" in os.environ:
        raise NodeNotReady(f"Ray runs inside of Carpool job {os.environ['CARPOOL_JOB']}; start Ray outside of jobs")
    try:
        with DaemonClient(default_home()) as client:
            return _literal(variables_for(client, wanted, env)) | GPUS_STAY
    except Problem as problem:
        raise NodeNotReady(f"{problem} ({problem.info.hint})" if problem.info.hint else f"{problem}") from None
    except ClientError as error:
        raise NodeNotReady(f"{error}; on this node: carpool up") from None


def _literal(variables: dict[str, str]) -> dict[str, str]:
    """Escape ``$`` in values, because Ray replaces ``$NAME``.

    JSON has an escape for a dollar sign, a socket's path has none.  Raises NodeNotReady for such a path.
    """
    if "$" in variables[JOIN]:
        raise NodeNotReady(f"Ray cannot pass on the path {variables[JOIN]}; choose a home without a dollar sign")
    return variables | {OPTIONS: variables[OPTIONS].replace("$", "\\u0024")}
