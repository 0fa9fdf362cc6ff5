"""What a node needs before Ray starts there: the plugin of its agent, and shares of its devices."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from carpool.protocol.client import ClientError, DaemonClient
from carpool.protocol.paths import default_home
from carpool.ray.words import CLASS, PLUGINS, RESOURCE

#: As many processes share a device, unless the node says otherwise.
SHARES = 10


class NodeNotReady(Exception):
    """No worker could join on this node; the text says why and what to do."""


def node_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables with which Ray is to be started on a node, so that its agent has Carpool's plugin.

    Plugins that ``environ`` (this process's) names already stay.  Raises NodeNotReady.
    """
    env = os.environ if environ is None else environ
    if "CARPOOL_JOB" in env:
        text = f"this is a process of Carpool job {env['CARPOOL_JOB']}, and what a job starts is part of that job"
        raise NodeNotReady(f"{text}; start Ray outside of jobs")
    others = [plugin for plugin in _plugins(env) if plugin.get("class") != CLASS]
    return {PLUGINS: json.dumps([*others, {"class": CLASS}])}


def node_resources(shares: int = SHARES, *, environ: Mapping[str, str] | None = None) -> dict[str, float]:
    """The custom resources of a node: ``shares`` for each device of its daemon.  Raises NodeNotReady.

    ``environ`` (this process's) is what Ray will be started with: a node without the plugin has no shares, because its
    workers would not join.
    """
    env = os.environ if environ is None else environ
    if shares < 1:
        raise NodeNotReady(f"a device has at least one share, not {shares}")
    if not any(plugin.get("class") == CLASS for plugin in _plugins(env)):
        text = f"{PLUGINS} does not name Carpool's plugin, without which workers do not join"
        raise NodeNotReady(f'{text}; before, in the same shell: eval "$(python -m carpool.ray variables)"')
    return {RESOURCE: float(shares * _devices(env))}


def prepare_node(shares: int = SHARES) -> dict[str, float]:
    """For ``ray.init(resources=prepare_node())``, which starts a node of this program's own.  Raises NodeNotReady.

    Sets a variable of this process, which the node inherits.
    """
    os.environ.update(node_variables())
    return node_resources(shares)


def _devices(env: Mapping[str, str]) -> int:
    """How many the daemon has.  Raises NodeNotReady."""
    try:
        with DaemonClient(default_home(env)) as client:
            return len(client.devices())
    except ClientError as error:
        raise NodeNotReady(f"{error}; start one on this node: carpool up") from None


def _plugins(env: Mapping[str, str]) -> list[dict[str, object]]:
    """Raises NodeNotReady."""
    try:
        found = json.loads(env.get(PLUGINS) or "[]")
    except ValueError as error:
        raise NodeNotReady(f"{PLUGINS} is no JSON ({error}); mend it, or unset it") from None
    if not isinstance(found, list) or not all(isinstance(plugin, dict) for plugin in found):
        raise NodeNotReady(f"{PLUGINS} is no list of objects; mend it, or unset it")
    return found
