"""The memory that a job needs on a device to be placed there, and the devices that it may use at all."""

from __future__ import annotations

from carpool.core.memory import contexts
from carpool.core.model import Attempt, DeviceId, Memory, Reason
from carpool.core.state.amounts import clipped
from carpool.core.state.device import Device
from carpool.core.state.job import Job, Requirements
from carpool.core.state.state import State
from carpool.core.units import format_size

#: How much more than was measured or expected is reserved after an out-of-memory error: three halves.
RAISE_BY, RAISE_OF = 3, 2


def need_on(device: Device, job: Job) -> Memory:
    """Return what to reserve for a job when it is placed on this device.

    The need of a job that has run out of memory is a guess with room to spare.  On a device that it has to itself the
    spare part may be missing, where others hold a little of it; what the guess was made from may not.  On an idle
    device a job has what there is beside its own context.
    """
    asked, usable = job.requirements, device.usable
    need, most = asked.memory, max(0, usable - contexts.taken(device, job))
    guessed = asked.guessed and need.total * RAISE_OF <= most * RAISE_BY
    return clipped(need, most) if guessed or (device.idle and need.total <= usable) else need


def fits(device: Device, job: Job) -> bool:
    """Whether the device could take the job if no other job were there."""
    return (
        need_on(device, job).total <= device.usable
        and not too_little(device, job.requirements)
        and not device.spec.drained
    )


def too_little(device: Device, asked: Requirements) -> bool:
    """Whether other programs leave no more of the device than was not enough for the job alone."""
    return 0 < asked.outgrown >= device.usable


def named(asked: Requirements) -> tuple[DeviceId, ...] | None:
    """Return the devices that a job insists on; None: any."""
    return (asked.device,) if isinstance(asked.device, str) else asked.device


def allowed(state: State, asked: Requirements) -> list[Device]:
    """Return the devices that a job may use, in the order in which they were added."""
    names = named(asked)
    among = state.devices.values() if names is None else filter(None, map(state.devices.get, dict.fromkeys(names)))
    able = [device for device in among if _able(device, asked)]
    return able if names is None else sorted(able, key=lambda device: device.position)


def may_use(device: Device, asked: Requirements) -> bool:
    """Whether the device is one that the job may use; for one device, as `allowed` for all."""
    names = named(asked)
    return (names is None or device.spec.id in names) and _able(device, asked)


def _able(device: Device, asked: Requirements) -> bool:
    large = not asked.outgrown or device.spec.capacity > asked.outgrown
    return large and (device.spec.checkpoint or not asked.checkpoint)


def unrestricted(asked: Requirements) -> bool:
    """Whether the job may use every device."""
    return asked.device is None and not asked.outgrown and not asked.checkpoint


def larger(state: State, job: Job, outgrown: int) -> list[int]:
    """Return the capacities above ``outgrown`` bytes of the devices that the job may use, largest first."""
    capacities = (device.spec.capacity for device in allowed(state, job.requirements))
    return sorted((capacity for capacity in capacities if capacity > outgrown), reverse=True)


def most_after(state: State, job: Job, outgrown: int) -> int:
    """Return the most that each of the job's devices can hold if all are larger than ``outgrown`` bytes; 0: too few."""
    return (larger(state, job, outgrown) + [0] * job.spec.gang)[job.spec.gang - 1]


def no_more_memory(state: State, job: Job, past: Attempt) -> str | None:
    """Return why no device has more memory for a job that ran out of it in ``past``; None: enough devices have."""
    count = len(larger(state, job, past.outgrown))
    if not past.outgrown or count >= job.spec.gang:
        return None
    held = "asked for more than all of" if job.denied else "had exclusive use of"
    few = f"{count} larger, of the {job.spec.gang} that it needs" if count else "no larger device"
    return f"it {held} {past.device} ({format_size(past.outgrown)}), and may use {few}"


def impossible(state: State, job: Job) -> Reason | None:
    """Return why the job could never run, as far as its estimate tells; None: it could."""
    asked = job.requirements
    if not state.devices or (unrestricted(asked) and asked.gang == 1 and asked.memory.total <= state.largest_capacity):
        return None
    devices = allowed(state, asked)
    reason = _missing(state, asked, devices)
    if reason is not None:
        return reason
    return _too_few(asked, devices) if job.spec.needs_several else _too_small(asked, devices)


def _missing(state: State, asked: Requirements, devices: list[Device]) -> Reason | None:
    """Why none of the devices is there, or none is large enough to try again."""
    missing = [name for name in named(asked) or () if name not in state.devices]
    if missing:
        known = ", ".join(sorted(state.devices))
        return Reason("unknown_device", f"there is no device {missing[0]!r}; devices: {known}")
    if devices or not asked.outgrown:
        return None
    text = f"ran out of memory alone on {format_size(asked.outgrown)}, and there is no larger device here"
    return Reason("out_of_memory", text)


def _too_small(asked: Requirements, devices: list[Device]) -> Reason | None:
    """Why none of the devices could ever take a job that needs one."""
    names = named(asked)
    if not devices:
        where = "no device here" if names is None else f"{', '.join(names)} has no driver that"
        return Reason("no_checkpoint", f"checkpoint jobs need a driver that suspends processes: {where} can")
    largest = max(devices, key=lambda device: device.spec.capacity)
    need = asked.memory.total
    if need <= largest.spec.capacity:
        return None
    one = names is not None and len(names) == 1
    where = f"{largest.spec.id} holds" if one else f"the largest device, {largest.spec.id}, holds"
    return Reason("too_large", f"needs {format_size(need)}, but {where} {format_size(largest.spec.capacity)}")


def _too_few(asked: Requirements, devices: list[Device]) -> Reason | None:
    """Why there will never be enough devices for the job; None: there may be."""
    count = asked.gang
    if asked.checkpoint:
        return Reason("no_checkpoint", f"checkpoint jobs support one device; the job needs {count}")
    if len(devices) < count:
        which = "there are" if asked.device is None else "it may use"
        return Reason("too_many_devices", f"needs {count} devices, but {which} {len(devices)}")
    need = asked.memory.total
    large = sum(need <= device.spec.capacity for device in devices)
    if large < count:
        return Reason(
            "too_large", f"needs {format_size(need)} on each of {count} devices, but only {large} hold so much"
        )
    return None
