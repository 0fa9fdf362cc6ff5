"""POST /v1/jobs: checked, made durable, told to the core, acknowledged; in this order."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from functools import partial

import msgspec

from carpool.core.events import Submitted
from carpool.core.model import Dependency, Estimate, JobId, JobSpec
from carpool.core.spelling import did_you_mean
from carpool.core.state.amounts import clipped
from carpool.daemon.api.call import ApiCall
from carpool.daemon.api.checks import (
    check_arrays,
    check_directory,
    check_numbers,
    check_own_files,
    check_texts,
)
from carpool.daemon.api.context import Caller, Context, administers, removed_text, viewer, was_removed
from carpool.daemon.api.middleware import check_user
from carpool.daemon.api.quotas import (
    check_common_environment,
    check_group,
    check_retries,
    check_room,
    check_spec_size,
    check_time_limit,
    spend_rate,
    with_time_limit,
)
from carpool.daemon.config.limits import Audience
from carpool.daemon.jobs.control import control_at_submission
from carpool.daemon.jobs.submissions import size_of
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.journal.writer import disk_full
from carpool.daemon.system.errors import JournalFull, RequestError
from carpool.daemon.system.log_setup import REQUEST
from carpool.devices.base import DeviceBackend
from carpool.options.arrays import MOST_JOBS
from carpool.options.requests import dependencies, may_use, named_devices, with_dependencies
from carpool.protocol.api import (
    HistoryInfo,
    HistoryRequest,
    SubmitManyRequest,
    SubmitManyResponse,
    SubmitRequest,
    SubmitResponse,
)
from carpool.protocol.display import user_name
from carpool.protocol.environment import REQUEST_HEADER, parameter_variables
from carpool.protocol.estimates import AT_SUBMISSION
from carpool.protocol.models import DEFAULT_PRIORITY
from carpool.protocol.units import format_size


async def submit(call: ApiCall) -> object:
    """Submit one job.  Durable before the answer."""
    job = await submit_one(call.context, await call.body(SubmitRequest), call.who)
    return SubmitResponse(job.id)


async def submit_one(context: Context, asked: SubmitRequest, who: Caller, *, joined: bool = False) -> JobRecord:
    """Submit a job, durably, and tell the core.  ``joined``: the job's process exists, and has joined.

    Raises RequestError, JournalFull.
    """
    spec = with_time_limit(context, asked)
    check(context, spec, who, joined=joined)
    if spec.array_limit:
        check_arrays(SubmitManyRequest([spec]))
    check_present(context, [spec], who)
    job = new_record(context, context.jobs.new_id(), spec, who, joined=joined)
    await accept(context, [job])
    return job


async def history(call: ApiCall) -> object:
    """Return what earlier runs of a command of the caller needed."""
    asked = await call.body(HistoryRequest)
    runs = call.context.store.runs(call.who.uid, asked.cwd, asked.argv)
    return HistoryInfo(runs)


async def submit_many(call: ApiCall) -> object:
    """Submit several jobs in one transaction."""
    context = call.context
    many = await call.body(SubmitManyRequest)
    who = call.who
    check_common_environment(context, many, MOST_JOBS)
    specs = [with_time_limit(context, msgspec.structs.replace(spec, env=many.env | spec.env)) for spec in many.jobs]
    check_arrays(many)
    follows = _follows(many)
    _check_many(context, specs, follows, who)
    check_present(context, specs, who)
    jobs: list[JobRecord] = []
    first = {place: group[0] for group in many.arrays for place in group}
    for place, spec in enumerate(specs):
        before = {
            kind: [*numbers, *(jobs[other].id for other in follows[kind][place])]
            for kind, numbers in dependencies(spec)
        }
        number = context.jobs.new_id()
        array = None if place not in first else number if first[place] == place else jobs[first[place]].id
        whole = msgspec.structs.replace(with_dependencies(spec, before), array=array)
        jobs.append(new_record(context, number, whole, who))
    await accept(context, jobs)
    return SubmitManyResponse([job.id for job in jobs])


def new_record(context: Context, number: JobId, spec: SubmitRequest, who: Caller, *, joined: bool = False) -> JobRecord:
    """Make the record of a job that this request submits.  ``joined``: as in `submit_one`."""
    spec = msgspec.structs.replace(spec, request=REQUEST.get(), joined=joined)
    control = control_at_submission(who.uid, spec)
    job = JobRecord(number, who.uid, who.gid, spec, None, context.jobs.now_us(), control=control)
    job.estimate = _estimate(context, job)
    return job


def _follows(many: SubmitManyRequest) -> dict[Dependency, list[list[int]]]:
    """Return the positions of the jobs that each job follows, by how these jobs have to end."""
    given = zip(Dependency, (many.follows, many.follows_any, many.follows_notok), strict=True)
    return {kind: lists or [[] for _ in many.jobs] for kind, lists in given}


def _estimate(context: Context, job: JobRecord) -> Estimate | None:
    """Return the job's estimate; one from earlier runs is clipped to what a device shares, and refuses no command.

    A job that has several devices, or one to itself, gets its memory from their drivers, and may have had more.
    """
    found = context.store.estimate(job)
    if found is None or found.source != "history":
        return found
    return dataclasses.replace(found, memory=clipped(found.memory, _capacity(context, job.spec)))


def _capacity(context: Context, spec: SubmitRequest) -> int:
    """Return the bytes of the smallest of the ``spec.gpus`` largest devices that the job may use."""
    return sorted((device.capacity for device in _able(context, spec)), reverse=True)[spec.gpus - 1]


def check_present(context: Context, specs: list[SubmitRequest], who: Caller) -> None:
    """Check that the daemon is not stopping, and dependencies, right before jobs are accepted.  Raises RequestError."""
    if context.stopping.is_set():
        raise RequestError(503, "stopping", "the daemon is stopping", "start it again: carpool up")
    for spec in specs:
        for kind, numbers in dependencies(spec):
            for number in numbers:
                check_dependency(context, number, kind, who)


def _check_follows(count: int, follows: list[list[int]]) -> None:
    if len(follows) != count:
        raise RequestError(400, "bad_follows", f"follows has {len(follows)} entries for {count} jobs")
    for place, earlier in enumerate(follows):
        if not all(0 <= before < place for before in earlier):
            raise RequestError(400, "bad_follows", f"job {place + 1} can only follow jobs before it in the request")


def _check_many(
    context: Context, specs: list[SubmitRequest], follows: dict[Dependency, list[list[int]]], who: Caller
) -> None:
    """Check each submission.  Raises RequestError for the first that could never run, and says which it is."""
    for lists in follows.values():
        _check_follows(len(specs), lists)
    for place, spec in enumerate(specs, 1):
        if spec.foreground:
            raise RequestError(400, "foreground", "jobs in the foreground are submitted one by one")
        try:
            check(context, spec, who)
        except RequestError as error:
            text = f"job {place} of {len(specs)}{f' ({spec.name})' if spec.name else ''}: {error.info.message}"
            raise RequestError(error.status, error.info.code, text, error.info.hint) from None


def accept(context: Context, jobs: list[JobRecord]) -> asyncio.Future[None]:
    """Record the jobs, all or none; the future is done when they are durable, and known to the core.

    A client that hangs up must not leave a job that is in the journal but not in the core.  Raises RequestError,
    JournalFull.
    """
    try:
        sizes = [size_of(job.spec) for job in jobs]
        check_room(context, jobs[0].owner, sizes)
        spend_rate(context, jobs[0].owner, len(jobs))
        for job, size in zip(jobs, sizes, strict=True):
            context.jobs.submitted.add(job.id, job.owner, size)
        recorded = _record(context, jobs)
    except BaseException:
        _take_back(context, jobs)
        raise
    accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    recorded.add_done_callback(partial(_recorded, context, jobs, accepted))
    return accepted


def _recorded(
    context: Context, jobs: list[JobRecord], accepted: asyncio.Future[None], recorded: asyncio.Future[None]
) -> None:
    """Tell the core of the recorded jobs, or take them back, and resolve ``accepted``.

    ``accepted`` is the future that the request's handler awaits; a handler that was cancelled has cancelled it.
    """
    error = recorded.exception()
    if error is None:
        _make_known(context, jobs)
    else:
        _take_back(context, jobs)
    if accepted.cancelled():
        return
    if error is None:
        accepted.set_result(None)
    else:
        accepted.set_exception(error)


def _make_known(context: Context, jobs: list[JobRecord]) -> None:
    for job in jobs:
        context.jobs.live[job.id] = job
        context.post(Submitted(job.id, core_spec(context, job)))


def _take_back(context: Context, jobs: list[JobRecord]) -> None:
    for job in jobs:
        context.jobs.submitted.remove(job.id)
        context.jobs.refused.add(job.id)


def _record(context: Context, jobs: list[JobRecord]) -> asyncio.Future[None]:
    for job in jobs:
        if job.spec.foreground:
            # The caller's shim needs the directory at once.  For other jobs it can wait: the fsync of a submission
            # costs five times as much when a new directory has to reach the disk, too.
            _create_directory(context, job)
    return context.store.submitted(jobs)


def _create_directory(context: Context, job: JobRecord) -> None:
    try:
        context.privileges.create_directory(job.id, job.owner, job.gid)
    except OSError as error:
        if not disk_full(error):
            raise
        text = f"cannot create the job's directory: {error.strerror}"
        raise JournalFull("disk_full", text, "make room, then try again") from None


def core_spec(context: Context, job: JobRecord) -> JobSpec:
    """Return the job as the core is told of it; the core refuses it if a dependency has failed since `check` looked."""
    return job.core_spec(partial(_waits_for, context), context.limits.retry_pause_us)


def _waits_for(context: Context, number: JobId, kind: Dependency) -> bool:
    """Whether a dependency is not met yet; a job that was removed since `check` looked had ended long before."""
    ended = context.jobs.ended.get(number)
    return number in context.jobs.live if ended is None else not kind.met_by(ended.outcome)


def check(context: Context, spec: SubmitRequest, who: Caller, *, joined: bool = False) -> None:
    """Refuse a job that could never run, whatever others do.  Raises RequestError.  ``joined``: as in `submit_one`."""
    if not spec.argv or not spec.argv[0]:
        raise RequestError(400, "empty_command", "there is no command to run", "carpool submit -- python train.py")
    _check_owner(context, who)
    texts = (*spec.argv, spec.cwd, spec.name, spec.launcher, *spec.own_variables)
    check_texts("the command, directory, name", texts, spec.env | parameter_variables(spec.parameters))
    check_directory(spec.cwd)
    check_own_files(spec)
    _check_left_out(spec, joined)
    check_retries(context, spec)
    check_changeable(context, spec, who)
    _check_checkpoint(context, spec)
    _check_service(context, spec, who)
    if spec.estimate_source not in ("hint", *AT_SUBMISSION):
        known = ", ".join(("hint", *AT_SUBMISSION))
        raise RequestError(
            400, "unknown_estimator", f"no estimator is called {spec.estimate_source!r}", f"known: {known}"
        )
    if spec.foreground and (spec.retries or spec.requeue):
        raise RequestError(400, "retries_foreground", "jobs in the foreground are not retried", "use carpool submit")


def _check_left_out(spec: SubmitRequest, joined: bool) -> None:
    """Refuse fields that the daemon sets, and those that only a process that joins has.  Raises RequestError."""
    if spec.array is not None or spec.retry_of is not None:
        text = "the id of an array, and that of a job that is tried again, are given by the daemon"
        raise RequestError(400, "bad_array", text, "leave array and retry_of out")
    if spec.joined:
        text = "only a process that joins makes such a job, over the session socket"
        raise RequestError(400, "bad_joined", text, "leave joined out; carpool env prints what makes a process join")
    if (spec.launcher or spec.launcher_ends_us is not None) and not joined:
        text = "only a process that joins has a launcher"
        raise RequestError(400, "bad_launcher", text, "leave launcher and launcher_ends_us out")
    if spec.request:
        text = f"the id of a request comes in its header {REQUEST_HEADER}"
        raise RequestError(400, "bad_request_id", text, "leave request out")


def check_changeable(context: Context, spec: SubmitRequest, who: Caller) -> None:
    """Check the fields that may be changed after the submission; a part of `check`.  Raises RequestError."""
    check_spec_size(context, spec)
    check_numbers(spec)
    if (refusal := context.hooks.submit(spec)) is not None:
        raise RequestError(400, refusal.code, refusal.text, refusal.hint)
    check_time_limit(context, spec, who)
    check_group(context, spec)
    _check_device(context, spec)


def _check_owner(context: Context, who: Caller) -> None:
    if why := context.privileges.why_not(who.uid):
        hint = "submit it as another user, for example: sudo -u USER carpool submit ..."
        raise RequestError(403, "no_jobs_of_this_user", why, hint)


def _check_device(context: Context, spec: SubmitRequest) -> None:
    devices, names = context.seating.devices, named_devices(spec) or ()
    for name in names:
        if name not in devices:
            known = f"{did_you_mean(name, devices)}known: {', '.join(devices)}"
            raise RequestError(400, "unknown_device", f"there is no device {name!r}", known)
    if len(set(names)) < len(names):
        raise RequestError(400, "bad_device", "a device is named twice", "name each one once")
    able = _able(context, spec)
    if spec.gpus > len(able):
        which = "it may use" if names else "there are"
        text = f"the job needs {spec.gpus} devices at once, but {which} {len(able)}"
        raise RequestError(422, "too_many_devices", text, f"known: {', '.join(devices)}")
    _check_size(spec, able)


def _able(context: Context, spec: SubmitRequest) -> list[DeviceBackend]:
    """Return the devices that the job may use."""
    return [device for device in context.seating.devices.values() if may_use(spec, device.id)]


def _check_size(spec: SubmitRequest, able: Sequence[DeviceBackend]) -> None:
    """Refuse a job for which too few of the devices that it may use are large enough.  Raises RequestError."""
    hint = (spec.persistent_bytes or 0) + (spec.ephemeral_bytes or 0)
    large = sum(hint <= device.capacity for device in able)
    if large < spec.gpus:
        text = _too_large(spec, format_size(hint), able, large)
        hint_text = "ask for less, or start the daemon with a larger device: carpool up --device host:SIZE"
        raise RequestError(422, "too_large", text, hint_text)


def _too_large(spec: SubmitRequest, size: str, able: Sequence[DeviceBackend], large: int) -> str:
    if spec.gpus > 1:
        which = f"only {large}" if large else "none"
        return f"the job asks for {size} on each of {spec.gpus} devices, but {which} of {len(able)} can hold so much"
    where = "the largest device" if len(able) > 1 or spec.device is None else f"device {spec.device}"
    return f"the job asks for {size}, but {where} holds {format_size(max(device.capacity for device in able))}"


def _check_checkpoint(context: Context, spec: SubmitRequest) -> None:
    if not spec.checkpoint:
        return
    if spec.foreground:
        text = "a checkpoint job cannot run in the foreground"
        raise RequestError(
            400, "checkpoint_foreground", text, "use carpool submit --checkpoint, and carpool logs --follow"
        )
    if spec.gpus > 1:
        text = f"checkpoint jobs run on one device; this job needs {spec.gpus}"
        raise RequestError(400, "checkpoint_devices", text, "leave --gpus or --checkpoint out")
    if not any(device.checkpoint for device in _able(context, spec)):
        where = f"device {spec.device}" if spec.device else "any device"
        text = f"checkpoint jobs need a driver that can suspend processes; there is none on {where}"
        raise RequestError(
            422, "no_checkpoint", text, "that needs a GPU with NVIDIA's driver 575 or later; see carpool doctor"
        )


def _check_service(context: Context, spec: SubmitRequest, who: Caller) -> None:
    if spec.pin and not spec.engine:
        raise RequestError(400, "pin_engine", "only engines can be pinned", "leave pin out")
    if spec.service is None:
        return
    if spec.exclusive or spec.gpus > 1 or spec.checkpoint:
        text = "a service shares one device: exclusive, several gpus and checkpoint are not for services"
        raise RequestError(400, "service_alone", text, "leave exclusive, gpus and checkpoint out")
    if context.limits.services is Audience.ADMINS and not administers(context, who):
        text = f"user {user_name(who.uid)} may not run services, which come before all training"
        raise RequestError(
            403, "not_operator", text, f'an administrator can allow it: services = "everyone" in {context.home.limits}'
        )
    if spec.engine and not administers(context, who):
        _check_engine(spec.service, spec.pin)


def _check_engine(priority: int, pin: bool) -> None:
    """Refuse what only engines of administrators may have.  Raises RequestError."""
    if priority > DEFAULT_PRIORITY:
        text = f"priorities of engines above {DEFAULT_PRIORITY} are for administrators; this one has {priority}"
        raise RequestError(403, "not_operator", text, "leave the priority out")
    if pin:
        text = "pinned engines, whose memory never leaves its device, are for administrators"
        raise RequestError(403, "not_operator", text, "leave pin out")


def check_dependency(context: Context, number: JobId, kind: Dependency, who: Caller) -> None:
    """Refuse a dependency on an unknown job, or on one that has ended otherwise.  Raises RequestError."""
    asked = f"--after {number}" if kind is Dependency.OK else f"--after {kind}:{number}"
    known = viewer(context, who).knows(context.jobs.owner(number))
    if known and number in context.jobs.live:
        return
    ended = context.jobs.ended.get(number) if known else None
    if ended is None and was_removed(context, number, who):
        text, kept = removed_text(context, number)
        hint = f"{kept}; leave {asked} out if that job did what is needed"
        raise RequestError(400, "unknown_dependency", f"{asked}: {text}", hint)
    if ended is None:
        raise RequestError(400, "unknown_dependency", f"{asked}: there is no job {number}", "carpool ls --all")
    if not kind.met_by(ended.outcome):
        raise RequestError(409, "failed_dependency", f"{asked}: job {ended.number} has ended: {ended.outcome.words}")


async def join(context: Context, who: Caller, asked: SubmitRequest) -> JobRecord:
    """Submit a job for a process that joins, as soon as the daemon has restarted.  Raises RequestError, JournalFull."""
    check_user(who.uid, context)
    await context.ready.wait()
    return await submit_one(context, asked, who, joined=True)
