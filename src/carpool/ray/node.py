"""Preparation of a node before Ray starts there: the plugin of its agent, and shares of its devices."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from carpool.protocol.client import ClientError, DaemonClient
from carpool.protocol.paths import default_home
from carpool.ray.environment import CLASS, PLUGINS, RESOURCE

#: Default number of processes that share a device.
SHARES = 10


class NodeNotReady(Exception):
    """No worker could join on this node; the text gives the reason and what to do."""


def node_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables with which Ray must be started on a node, so that its agent loads Carpool's plugin.

    Plugins that ``environ`` (default: this process's environment) already names are kept.  Raises NodeNotReady.
    """
    env = os.environ if environ is None else environ
    if "CARPOOL_JOB" in env:
        text = f"this is a process of Carpool job {env['CARPOOL_JOB']}, and what a job starts is part of that job"
        raise NodeNotReady(f"{text}; start Ray outside of jobs")
    others = [plugin for plugin in _plugins(env) if plugin.get("class") != CLASS]
    return {PLUGINS: json.dumps([*others, {"class": CLASS}])}


def node_resources(shares: int = SHARES, *, environ: Mapping[str, str] | None = None) -> dict[str, float]:
    """Return the custom resources of a node: ``shares`` for each device of its daemon.  Raises NodeNotReady.

    ``environ`` (default: this process's environment) is the environment that Ray will be started with: a node without
    the plugin has no shares, because its workers would not join.
    """
    env = os.environ if environ is None else environ
    if shares < 1:
        raise NodeNotReady(f"a device has at least one share, not {shares}")
    if not any(plugin.get("class") == CLASS for plugin in _plugins(env)):
        text = f"{PLUGINS} does not name Carpool's plugin, without which workers do not join"
        raise NodeNotReady(f'{text}; before, in the same shell: eval "$(python -m carpool.ray variables)"')
    return {RESOURCE: float(shares * _devices(env))}


def prepare_node(shares: int = SHARES) -> dict[str, float]:
    """Prepare a node that this program starts itself, as in ``ray.init(resources=prepare_node())``.

    Sets a variable of this process, which the node inherits.  Raises NodeNotReady.
    """
    os.environ.update(node_variables())
    return node_resources(shares)


def _devices(env: Mapping[str, str]) -> int:
    """Return the number of devices of the daemon.  Raises NodeNotReady."""
    try:
        with DaemonClient(default_home(env)) as client:
            return len(client.devices())
    except ClientError as error:
        raise NodeNotReady(f"{error}; start one on this node: carpool up") from None


def _plugins(env: Mapping[str, str]) -> list[dict[str, object]]:
    """Return the plugins that the variable names so far.  Raises NodeNotReady."""
    try:
        found = json.loads(env.get(PLUGINS) or "[]")
    except ValueError as error:
        raise NodeNotReady(f"{PLUGINS} is not JSON ({error}); fix it, or unset it") from None
    if not isinstance(found, list) or not all(isinstance(plugin, dict) for plugin in found):
        raise NodeNotReady(f"{PLUGINS} is not a list of objects; fix it, or unset it")
    return found
