"""Engines: services that know nothing of turns, as model servers; their front says when they have requests.

`ServiceBusy` is all that the core hears.  While an engine is busy its turn is wanted on its behalf, before it touches
its device.  When it has no more requests it is asked to let go at once, at any instruction: all its memory is
persistent, so there is nothing to save.

An engine may also compute without requests: it loads its weights, or has not noticed that a client has left.  Then it
asks for turns itself, keeps each for a quantum while others wait, and others have a quantum after each.

Busy engines leave others a share of the time: other jobs, and engines without requests.  The debt of a device's busy
engines grows while one computes and shrinks while none does; it stays the same if they compute for
`service_share_ppm` of the time.  Without a debt an engine computes for its share of `WINDOW_US` before others have a
quantum.  In this *recess* engines in debt get neither turns nor memory; it lasts a quantum from the time at which the
memory of the job that computes first is back.
"""

from __future__ import annotations

from carpool.core.metering.usage import move_price
from carpool.core.model import Micros
from carpool.core.state.amounts import ready
from carpool.core.state.device import Device, Lane
from carpool.core.state.job import Job
from carpool.core.state.state import State
from carpool.core.stats import PPM

WINDOW_US = 10_000_000
#: A turn that is taken at any instruction lasts so long at least: shorter ones might end before anything is computed.
LEAST_US = 20_000


def begins(state: State, device: Device, job: Job) -> None:
    """Begin to count the turn of an engine; or the quantum of others, which begins with the memory of the first one."""
    if job.is_engine:
        _settle(state, device, computed=False)
    if device.recess_unused and state.now < device.recess_until_us:
        device.recess_unused = False
        _set_recess(state, device, job.restoring_us)


def ends(state: State, device: Device, job: Job) -> None:
    """Count the turn of an engine that ends; if it gives way to others they have a quantum before its next turn."""
    if not job.is_engine:
        return
    unasked = job.rests and not job.let_go
    _settle(state, device, computed=not unasked)
    indebted = _indebted(state, device)
    if unasked or indebted:
        device.recess_of_busy = indebted or (device.recess_of_busy and state.now < device.recess_until_us)
        device.recess_of, device.recess_unused = job.id if unasked else None, True
        _set_recess(state, device, 2 * _moving_us(state, device, job))
    job.let_go = False


def _set_recess(state: State, device: Device, moving_us: Micros) -> None:
    device.recess_until_us = state.now + moving_us + _quantum_us(state, device)
    state.timers.set(("recess", device.spec.id), device.recess_until_us)


def _moving_us(state: State, device: Device, engine: Job) -> Micros:
    """Return how long moves may take until another job that waits can begin its turn."""
    others = (state.jobs[number] for number in device.jobs if number != engine.id)
    return max((move_price(state, engine, each) for each in others if each.wanted or each.pending), default=0)


def in_recess(state: State, device: Device, job: Job) -> bool:
    """Whether others have a quantum before the next turn of an engine."""
    if not job.is_engine or state.now >= device.recess_until_us:
        return False
    return device.recess_of == job.id or (device.recess_of_busy and not job.rests)


def end_recess(state: State, device: Device, job: Job) -> None:
    """Let an engine that has requests now begin, unless all engines owe time to others."""
    if device.recess_of == job.id:
        device.recess_until_us = 0
        state.touch_device(device.spec.id)


def due_us(state: State, lane: Lane, holder: Job, rival: Job) -> Micros | None:
    """Return when an engine that computes gives way to ``rival``: after a quantum with its memory back, or later.

    None: it need not.
    """
    device, share = state.devices[lane.device], state.settings.service_share_ppm
    least_us = lane.turn_us + holder.restoring_us + _quantum_us(state, device)
    if holder.rests:
        at_once = rival.serves and not rival.rests and ready(rival) and not in_recess(state, device, rival)
        return state.now if at_once else least_us
    if share >= PPM:
        return None
    left = _most_us(share) - device.engine_debt_us
    return max(least_us, device.engine_debt_at_us + left * PPM // (PPM - share))


def _quantum_us(state: State, device: Device) -> Micros:
    return max(state.quanta[device.spec.id], LEAST_US)


def _most_us(share_ppm: int) -> Micros:
    """Return the debt at which engines give way."""
    return WINDOW_US * share_ppm // PPM * (PPM - share_ppm) // PPM


def _indebted(state: State, device: Device) -> bool:
    share = state.settings.service_share_ppm
    return share < PPM and device.engine_debt_us >= _most_us(share)


def _settle(state: State, device: Device, computed: bool) -> None:
    """Bring the debt up to date: since the last time an engine has computed, or none has."""
    share, passed = state.settings.service_share_ppm, state.now - device.engine_debt_at_us
    change = passed * (PPM - share) // PPM if computed else -passed * share // PPM
    device.engine_debt_us = min(max(0, device.engine_debt_us + change), _most_us(share))
    device.engine_debt_at_us = state.now
