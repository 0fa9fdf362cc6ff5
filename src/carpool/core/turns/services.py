"""Services: jobs that compute for requests, before all other jobs, and in lanes of their own.

While a service has its turn no other job of its device has one.  A service is not asked for its turn: it gives the turn
back when its queue is empty, and only a service that has kept it beyond `Settings.forced_after_us` is treated like any
other job.
"""

from __future__ import annotations

from carpool.core.commands import DenyTurn
from carpool.core.model import Demand, Micros, Serving
from carpool.core.policies.base import Key
from carpool.core.state.amounts import ready
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State
from carpool.core.turns import weights

#: Later than every deadline.
NEVER: Micros = 1 << 62


def key(state: State, job: Job) -> Key:
    """Return the key that orders services (`Serving`); of equal ones the first to come is first."""
    assert job.spec.service is not None
    serving = state.settings.serving
    if serving == Serving.PRIORITY:
        return (-job.spec.service.priority,)
    if serving == Serving.EDF:
        return (NEVER if job.demand is None or job.demand.deadline_us is None else job.demand.deadline_us,)
    return ()


def accept(state: State, job: Job, demand: Demand | None) -> bool:
    """Note what a service wants its next turn for; False: that can never be, and the service has been told so.

    Other jobs want nothing else than their turn.
    """
    if not job.serves or (job.wanted and demand in (None, job.demand)):
        return True  # a trap beside the want that it waits for
    device = state.device_of(job)
    assert device is not None
    weights.let_go(state, device, job)
    state.touch_device(job.device)
    if demand is None:
        return True
    reason = weights.refusal(device, job, demand)
    if reason is not None:
        state.emit(DenyTurn(job.id, reason))
        return False
    weights.want(state, device, job, demand)
    return True


def first(state: State, device: Device) -> Job | None:
    """Return the service that could compute at once and comes before all others; None: there is none."""
    queues = (lane.queue for number in device.lanes if (lane := state.lanes[number]).serves)
    able = [entry for queue in queues for entry in queue if ready(state.jobs[entry[-1]])]
    return state.jobs[min(able)[-1]] if able else None


def hurries(job: Job) -> bool:
    """Whether the service's demand has a deadline."""
    return job.demand is not None and job.demand.deadline_us is not None


def copied_us(device: Device, job: Job) -> Micros:
    """When the weights of the job's turn have been copied; 0: there are none, or that is unknown."""
    wanted = weights.own(device, job)
    return 0 if wanted is None else wanted.there_us


def latest_us(state: State, job: Job) -> Micros:
    """When a service has to begin, so that it is done by its deadline; without one: when it has waited long enough.

    Weights that are still being copied count as if computing began behind the last of them.
    """
    demand, device = job.demand, state.device_of(job)
    if demand is None or demand.deadline_us is None or device is None:
        return job.wanted_us + state.settings.service_patience_us
    return demand.deadline_us - demand.compute_us - max(0, copied_us(device, job) - state.now)


def comes_first(job: Job, other: Job) -> bool:
    """Whether ``job``, which waits for its turn, computes before ``other``; one of them at least is a service."""
    if job.serves != other.serves:
        return job.serves
    return job.turn_key is not None and (other.turn_key is None or job.turn_key < other.turn_key)
