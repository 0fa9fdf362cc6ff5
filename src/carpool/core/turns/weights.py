"""Weights of services: read-only memory of a device that belongs to an owner, not to a job.

A service is promised the weights that it wants a turn for: from then on, until that turn is over, they are on the
device and stay there.  Weights that no service has been promised lie in free memory, as a cache would.  The host always
has a copy, so dropping them costs nothing, and a job that needs memory gets theirs before any other has to leave or to
wait.  The weights that are worth least per byte go first: what a reload costs times how often they are wanted.  When
the last service of an owner has left the device the owner's weights go, too.
"""

from __future__ import annotations

from carpool.core.commands import DropWeights, PlaceWeights
from carpool.core.model import Demand, Micros, Reason
from carpool.core.state import amounts
from carpool.core.state.amounts import needed
from carpool.core.state.device import Device, Weights
from carpool.core.state.job import Job
from carpool.core.state.state import State
from carpool.core.units import format_size

#: A want counts half as much after this.
HALF_LIFE_US: Micros = 60_000_000
ONE_WANT = 1 << 20
#: Worth is compared as an integer: so many units to the microsecond x want / byte.
WORTH_UNIT = 1 << 20
#: Most weights of an owner remembered per device; of the others it is forgotten how often they are wanted.
MOST_KNOWN = 4096


def rate(weights: Weights, now: Micros) -> int:
    """Return the demand for the weights: `ONE_WANT` for each want, halved every `HALF_LIFE_US`, linear in between."""
    halvings, rest = divmod(now - weights.rated_us, HALF_LIFE_US)
    value = weights.rate >> halvings
    return value - value * rest // (2 * HALF_LIFE_US)


def worth(weights: Weights, now: Micros) -> int:
    """Return what keeping a byte of the weights saves: reload cost x rate per byte."""
    return weights.reload_us * rate(weights, now) * WORTH_UNIT // max(1, weights.size)


def own(device: Device, job: Job) -> Weights | None:
    """Return the weights of the turn that a job wants or has; None: it needs none."""
    return None if job.demand is None else device.weights[job.spec.owner, job.demand.weights]


def refusal(device: Device, job: Job, demand: Demand) -> Reason | None:
    """Return why the job can never have a turn with these weights."""
    known = device.weights.get((job.spec.owner, demand.weights))
    if known is not None and known.resident and known.size != demand.size:
        text = f"weights {demand.weights!r} have {format_size(known.size)} on {device.spec.id}"
        return Reason("changed", f"{text}, not {format_size(demand.size)}: changed weights need another key")
    beside = needed(job).total + job.usage.fixed + device.context_of(job.id)
    if demand.size + beside <= device.spec.capacity:
        return None
    needs = f"weights {demand.weights!r} need {format_size(demand.size)}"
    needs += f", beside {format_size(beside)} that the service itself needs"
    return Reason("too_large", f"{needs}, but {device.spec.id} holds {format_size(device.spec.capacity)}")


def want(state: State, device: Device, job: Job, demand: Demand) -> None:
    """Record that the job's next turn needs these weights, which it has not been promised yet."""
    name = (job.spec.owner, demand.weights)
    weights = device.weights.get(name)
    if weights is None:
        weights = found(state, device, job.spec.owner, demand)
    elif not weights.resident:
        weights.size, weights.reload_us = demand.size, demand.reload_us
    weights.rate, weights.rated_us = rate(weights, state.now) + ONE_WANT, state.now
    job.set(demand=demand, weights_unplaced=True)


def found(state: State, device: Device, owner: int, demand: Demand) -> Weights:
    """Add weights that the device has not known before."""
    _forget_some(state, device, owner)
    key = demand.weights
    weights = Weights(owner, key, demand.size, demand.reload_us, state.number(), rated_us=state.now)
    device.weights[owner, key] = weights
    return weights


def _forget_some(state: State, device: Device, owner: int) -> None:
    services = (state.jobs[number] for number in device.excluding)
    wanted = {job.demand.weights for job in services if job.spec.owner == owner and job.demand is not None}
    known = (each for each in device.weights.values() if each.owner == owner)
    gone = [each for each in known if not each.resident and each.key not in wanted]
    if len(gone) >= MOST_KNOWN:
        coldest = min(gone, key=lambda each: (rate(each, state.now), each.number))
        del device.weights[owner, coldest.key]


def cost(device: Device, job: Job) -> int:
    """Free bytes that it takes to promise a job its weights."""
    weights = own(device, job) if job.weights_unplaced else None
    return 0 if weights is None or weights.users else weights.size


def total_cost(state: State, device: Device, job: Job) -> int:
    """Free bytes that it takes to let the job go on: its memory, and the weights that it wants its turn for."""
    return amounts.cost(state, job, needed(job)) + cost(device, job)


def place(state: State, device: Device, job: Job) -> None:
    """Promise the job its weights: there is room, or weights that no service uses make it."""
    weights = own(device, job)
    assert weights is not None
    _use(device, weights, job)
    if not weights.resident:
        _arrive(device, weights)
        weights.there_us = state.now + weights.reload_us
        give_way(state, device)
    state.emit(PlaceWeights(device.spec.id, weights.owner, weights.key, weights.size, job.id))


def in_use(device: Device, job: Job) -> None:
    """Mark the weights of a job that has a turn with them as used, after a restart."""
    weights = own(device, job)
    if weights is not None and weights.resident:
        _use(device, weights, job)


def _use(device: Device, weights: Weights, job: Job) -> None:
    if not weights.users:
        device.weights_kept += weights.size
    weights.users.add(job.id)
    job.weights_unplaced = False


def _arrive(device: Device, weights: Weights) -> None:
    weights.resident = True
    device.weight_bytes += weights.size


def on_device(state: State, device: Device, owner: int, demand: Demand) -> None:
    """Record weights that are on the device after a restart."""
    _arrive(device, found(state, device, owner, demand))


def let_go(state: State, device: Device, job: Job) -> None:
    """Release the weights of a turn that is over, or not wanted any more."""
    weights = own(device, job)
    job.set(demand=None, weights_unplaced=False)
    if weights is not None:
        _stop_using(state, device, weights, job)


def take_back(state: State, device: Device, job: Job) -> None:
    """Take the job's promise back while another has the device to itself; it is promised anew when that is over."""
    weights = own(device, job)
    if weights is not None:
        job.weights_unplaced = True
        _stop_using(state, device, weights, job)


def _stop_using(state: State, device: Device, weights: Weights, job: Job) -> None:
    if job.id not in weights.users:
        return
    weights.users.discard(job.id)
    if not weights.users:
        device.weights_kept -= weights.size
        if device.requests or device.waiters:
            state.touch_device(device.spec.id)
        state.admit_all = True


def give_way(state: State, device: Device) -> None:
    """Drop weights that no service uses, as far as they are in the way of what has been reserved."""
    over = device.persistent + device.lane_bytes + device.weight_bytes - device.usable
    if over <= 0 or state.restarting:
        return
    idle = [weights for weights in device.weights.values() if weights.resident and not weights.users]
    for weights in sorted(idle, key=lambda each: (worth(each, state.now), each.number)):
        if over <= 0:
            return
        over -= weights.size
        _drop(state, device, weights)


def _drop(state: State, device: Device, weights: Weights) -> None:
    weights.resident = False
    device.weight_bytes -= weights.size
    state.emit(DropWeights(device.spec.id, weights.owner, weights.key))


def owner_left(state: State, device: Device, owner: int) -> None:
    """Drop the owner's weights if no service of the owner is left on the device."""
    if any(state.jobs[number].spec.owner == owner for number in device.excluding if state.jobs[number].spec.service):
        return
    for name, weights in tuple(device.weights.items()):
        if weights.owner == owner:
            if weights.resident:
                _drop(state, device, weights)
            del device.weights[name]
