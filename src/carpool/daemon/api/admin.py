"""Version, policy, devices, shutdown."""

from __future__ import annotations

import os

from aiohttp import web

import carpool
from carpool.core.model import JobPhase, LaneId
from carpool.core.policies import available_policies
from carpool.daemon.api.context import CONTEXT, Context, caller
from carpool.daemon.api.middleware import json_response, read_body
from carpool.daemon.errors import ApiError
from carpool.daemon.settings import changed_settings, settings_table
from carpool.devices.base import Device
from carpool.plugins import announced_policies
from carpool.protocol.api import (
    API_VERSION,
    DeviceInfo,
    DeviceList,
    LaneInfo,
    PolicyInfo,
    PolicyRequest,
    ShutdownRequest,
    VersionInfo,
)


async def version(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    info = VersionInfo(
        carpool.__version__, API_VERSION, os.getpid(), str(context.home.root), context.uid, context.started_us
    )
    return json_response(info)


async def get_policy(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    settings, available = context.settings, [*available_policies(), *announced_policies()]
    fault = context.machine.policy_fault
    return json_response(PolicyInfo(settings.policy, available, settings_table(settings), fault))


async def put_policy(request: web.Request) -> web.Response:
    """Durable, and in force at once."""
    context = request.app[CONTEXT]
    _require_operator(context, request, "change the policy")
    wanted = await read_body(request, PolicyRequest)
    try:
        settings = changed_settings(context.settings, wanted.name, wanted.settings)
    except ValueError as error:
        raise ApiError(400, "bad_policy", str(error)) from None
    await context.apply_settings(settings)
    return await get_policy(request)


async def devices(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    return json_response(DeviceList([_device_info(context, device) for device in context.seating.devices.values()]))


async def shutdown(request: web.Request) -> web.Response:
    """Answers first, then stops."""
    context = request.app[CONTEXT]
    _require_operator(context, request, "stop the daemon")
    wanted = await read_body(request, ShutdownRequest) if request.can_read_body else ShutdownRequest()
    context.stop(wanted.stop_jobs)
    return json_response({}, 202)


def _require_operator(context: Context, request: web.Request, what: str) -> None:
    uid = caller(request).uid
    if uid not in (0, context.uid):
        raise ApiError(403, "not_operator", f"uid {uid} may not {what}; only uid {context.uid} and root may")


def _device_info(context: Context, device: Device) -> DeviceInfo:
    jobs = [job for _, job in sorted(context.jobs.live.items()) if job.device == device.id]
    lanes = [lane for lane, where in sorted(context.seating.lane_device.items()) if where == device.id]
    granted = sum(device.lane_size(lane) for lane in lanes) + sum(job.granted.persistent for job in jobs)
    queue = [
        number
        for number, job in sorted(context.jobs.live.items())
        if job.phase is JobPhase.QUEUED and job.spec.device in (None, device.id)
    ]
    return DeviceInfo(
        id=device.id,
        kind=device.kind,
        capacity_bytes=device.capacity,
        granted_bytes=granted,
        used_bytes=device.used_bytes(),
        free_bytes=max(0, device.capacity - granted),
        lanes=[_lane_info(context, device, lane) for lane in lanes],
        jobs=[job.id for job in jobs],
        queue=queue,
    )


def _lane_info(context: Context, device: Device, lane: LaneId) -> LaneInfo:
    jobs = [job for _, job in sorted(context.jobs.live.items()) if job.lane == lane]
    waiting = [job.id for job in jobs if job.seated and job.seated.seat.get("want") and not job.seated.seat.get("turn")]
    return LaneInfo(
        id=lane,
        owner=jobs[0].owner if jobs else context.uid,
        size_bytes=device.lane_size(lane),
        jobs=[job.id for job in jobs],
        holder=context.seating.holder.get(lane),
        waiting=waiting,
    )
