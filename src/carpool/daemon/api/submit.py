"""POST /v1/jobs: checked, made durable, told to the core, acknowledged; in this order."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import web

from carpool.core.events import Submitted
from carpool.core.model import Engine, JobId, Outcome
from carpool.daemon.api.context import CONTEXT, Caller, Context, caller
from carpool.daemon.api.middleware import json_response, read_body
from carpool.daemon.clock import wall_us
from carpool.daemon.errors import ApiError, JournalFull
from carpool.daemon.jobfiles import create_directory
from carpool.daemon.jobs import Job
from carpool.daemon.journal import disk_full
from carpool.protocol.api import SubmitRequest, SubmitResponse
from carpool.protocol.sizes import LARGEST, format_size


async def submit(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    spec = await read_body(request, SubmitRequest)
    if context.stopping.is_set():
        raise ApiError(503, "stopping", "the daemon is stopping", "start it again: carpool up")
    who = caller(request)
    check(context, spec, who)
    job = Job(context.jobs.new_id(), who.uid, who.gid, spec, context.store.estimate(who.uid, spec), wall_us())
    # Accepted is accepted: a client that hangs up now must not leave a job that is in the journal but not in the core.
    return await asyncio.shield(_accept(context, job))


async def _accept(context: Context, job: Job) -> web.Response:
    if job.spec.foreground:
        # The caller's shim needs it at once.  For others it can wait: the fsync of a submission costs five times as
        # much when a new directory has to reach the disk with it.
        _create_directory(context, job)
    await context.store.submitted(job)
    context.jobs.live[job.id] = job
    context.post(Submitted(job.id, job.core_spec(pending_dependencies(context, job))))
    return json_response(SubmitResponse(job.id), 201)


def _create_directory(context: Context, job: Job) -> None:
    try:
        create_directory(context.home, job.id, job.owner, job.gid)
    except OSError as error:
        if not disk_full(error):
            raise
        text = f"cannot create the job's directory: {error.strerror}"
        raise JournalFull("disk_full", text, "make room, then try again") from None


def pending_dependencies(context: Context, job: Job) -> tuple[JobId, ...]:
    """Those that have not ended; `check` has refused those that ended badly."""
    return tuple(number for number in job.spec.after if number in context.jobs.live)


def check(context: Context, spec: SubmitRequest, who: Caller) -> None:
    """Raises ApiError for anything that could never run."""
    if not spec.argv or not spec.argv[0]:
        raise ApiError(400, "empty_command", "there is no command to run", "carpool submit -- python train.py")
    if any("\0" in text for text in (*spec.argv, spec.cwd, *spec.env, *spec.env.values())):
        raise ApiError(400, "bad_text", "the command, directory or environment contains a NUL character")
    if any(not name or "=" in name for name in spec.env):
        raise ApiError(400, "bad_environment", "a name in the environment is empty or contains '='")
    _check_directory(spec)
    _check_numbers(spec)
    _check_device(context, spec)
    _check_engine(context, spec)
    for number in spec.after:
        _check_dependency(context, number)


def _check_directory(spec: SubmitRequest) -> None:
    if not Path(spec.cwd).is_absolute():
        raise ApiError(400, "bad_directory", f"the directory {spec.cwd!r} is not absolute")
    if not Path(spec.cwd).is_dir():
        raise ApiError(400, "missing_directory", f"there is no directory {spec.cwd}", "submit from one that exists")


def _check_numbers(spec: SubmitRequest) -> None:
    for name, smallest in (
        ("weight", 1),
        ("iterations", 1),
        ("duration_us", 1),
        ("persistent_bytes", 0),
        ("ephemeral_bytes", 0),
    ):
        value = getattr(spec, name)
        if value is not None and not smallest <= value <= LARGEST:
            raise ApiError(400, f"bad_{name}", f"{name} is {value}; it must be at least {smallest} (and below 2^63)")


def _check_device(context: Context, spec: SubmitRequest) -> None:
    devices = context.seating.devices
    if spec.device is not None and spec.device not in devices:
        raise ApiError(400, "unknown_device", f"there is no device {spec.device!r}", f"known: {', '.join(devices)}")
    hint = (spec.persistent_bytes or 0) + (spec.ephemeral_bytes or 0)
    largest = max(d.capacity for d in devices.values() if spec.device in (None, d.id))
    if hint > largest:
        where = f"device {spec.device}" if spec.device else "the largest device"
        raise ApiError(
            422,
            "too_large",
            f"the job asks for {format_size(hint)}, but {where} holds {format_size(largest)}",
            "ask for less, or start the daemon with a larger device: carpool up --device host:SIZE",
        )


def _check_engine(context: Context, spec: SubmitRequest) -> None:
    if spec.engine not in list(Engine):
        raise ApiError(400, "unknown_engine", f"there is no engine {spec.engine!r}", f"known: {', '.join(Engine)}")
    if spec.engine != Engine.CHECKPOINT:
        return
    if spec.foreground:
        text = "a job of engine checkpoint cannot run in the foreground"
        raise ApiError(400, "engine_foreground", text, "carpool submit --engine checkpoint, and carpool logs --follow")
    devices = context.seating.devices
    if not any(device.checkpoint for device in devices.values() if spec.device in (None, device.id)):
        where = f"device {spec.device}" if spec.device else "any device"
        text = f"engine checkpoint: there is no driver on {where} that can suspend processes"
        raise ApiError(
            422, "no_checkpoint", text, "it takes a GPU with NVIDIA's driver 570 or later; see carpool doctor"
        )


def _check_dependency(context: Context, number: JobId) -> None:
    if number in context.jobs.live:
        return
    ended = context.jobs.ended.get(number)
    if ended is None:
        raise ApiError(400, "unknown_dependency", f"--after {number}: there is no job {number}", "carpool ls --all")
    if ended.outcome is not Outcome.SUCCEEDED:
        raise ApiError(409, "failed_dependency", f"--after {number}: job {number} has ended: {ended.outcome.value}")
