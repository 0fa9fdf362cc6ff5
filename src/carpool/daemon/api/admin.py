"""Version, policy, shutdown."""

from __future__ import annotations

import os

from aiohttp import web

import carpool
from carpool.core.policies import available_policies
from carpool.core.policies.placement import available_placements
from carpool.daemon.api.context import CONTEXT, caller, require_admin, viewer
from carpool.daemon.api.middleware import json_response, read_body
from carpool.daemon.api.visibility import visible_fault
from carpool.daemon.config.settings import changed_settings, check_store, settings_table
from carpool.daemon.system.errors import RequestError
from carpool.plugins import announced_placements, announced_policies
from carpool.protocol.api import (
    API_VERSION,
    PolicyInfo,
    PolicyRequest,
    ShutdownRequest,
    VersionInfo,
)


async def version(request: web.Request) -> web.Response:
    """Return the daemon's version, process, user and home directory; answered while the daemon starts, too."""
    context = request.app[CONTEXT]
    who = os.getpid(), str(context.home.root), context.uid
    info = VersionInfo(
        carpool.__version__, API_VERSION, *who, context.started_us, context.control_groups, context.threads
    )
    return json_response(info)


async def get_policy(request: web.Request) -> web.Response:
    """Return the policies and settings in force, the available policies, and whether a user's policy has failed."""
    context = request.app[CONTEXT]
    settings, available = context.settings.current, [*available_policies(), *announced_policies()]
    placement = (settings.placement, [*available_placements(), *announced_placements()])
    sight = viewer(context, caller(request))
    faults = context.machine.policy_fault, context.machine.placement_fault
    fault, other = (visible_fault(sight, text) for text in faults)
    return json_response(PolicyInfo(settings.policy, available, settings_table(settings), fault, *placement, other))


async def put_policy(request: web.Request) -> web.Response:
    """Change policies and settings; the change is durable, and in force at once."""
    context = request.app[CONTEXT]
    require_admin(context, request, "change policies and settings")
    wanted = await read_body(request, PolicyRequest)
    try:
        current = context.settings.current
        settings = changed_settings(current, wanted.name, wanted.settings, wanted.placement)
        check_store(wanted.settings.get("host_store"), context.store_room)
    except ValueError as error:
        raise RequestError(400, "bad_policy", str(error)) from None
    await context.apply_settings(settings)
    return await get_policy(request)


async def shutdown(request: web.Request) -> web.Response:
    """Answer the request, then stop the daemon."""
    context = request.app[CONTEXT]
    require_admin(context, request, "stop the daemon")
    wanted = await read_body(request, ShutdownRequest) if request.can_read_body else ShutdownRequest()
    context.stop(wanted.stop_jobs)
    return json_response({}, 202)
