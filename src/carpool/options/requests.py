"""The options of a submitted job, read from its request: bounds, differences, dependencies, devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from carpool.core.model import Dependency, DeviceId, JobId, JobSpec
from carpool.options.table import OPTIONS, UPDATES, JobOption
from carpool.protocol.api import SubmitRequest
from carpool.protocol.units import LARGEST

#: Fields that no option sets, and their least values.
_OTHER_BOUNDS = {"service": 1, "index": 0, "array_limit": 0, "launcher_ends_us": 0}
_BOUNDS = {name: option.type.least for option in OPTIONS for name in option.fields if option.type.least is not None}
#: The least value of each number in a request.
BOUNDS = _BOUNDS | _OTHER_BOUNDS


#: Fields that the core is told as they are.
_OF_CORE = (
    *("name", "iterations", "duration_us", "weight", "exclusive", "checkpoint", "time_us", "device_time_us"),
    *("limit_signal", "limit_signal_us", "array", "index", "group"),
)
_told = attrgetter(*_OF_CORE)


def told_to_core(spec: SubmitRequest | JobSpec) -> dict[str, Any]:
    """Return the fields that a submission and the core's specification of a job have in common, of either."""
    return dict(zip(_OF_CORE, _told(spec), strict=True))


def out_of_bounds(spec: msgspec.Struct, bounds: Mapping[str, int] = BOUNDS) -> Iterator[tuple[str, int, int]]:
    """Yield the fields whose number is too small or too large: the name, the number and the least value."""
    for name, least in bounds.items():
        value = getattr(spec, name)
        if value is not None and not least <= value <= LARGEST:
            yield name, value, least


def changed_options(before: SubmitRequest, after: SubmitRequest) -> dict[str, JobOption]:
    """Return the options that `carpool update` changes and that differ between two requests, by name."""
    return {
        option.name: option
        for option in UPDATES.values()
        if any(getattr(before, name) != getattr(after, name) for name in option.fields)
    }


def dependencies(spec: SubmitRequest) -> tuple[tuple[Dependency, list[JobId]], ...]:
    """Return the jobs that a submission starts after, by the way in which they have to end."""
    return (Dependency.OK, spec.after), (Dependency.ANY, spec.after_any), (Dependency.NOTOK, spec.after_notok)


def with_dependencies(spec: SubmitRequest, numbers: Mapping[Dependency, Sequence[JobId]]) -> SubmitRequest:
    """Return the submission with other jobs that it starts after."""
    ok, ended, notok = (list(numbers[kind]) for kind in Dependency)
    return msgspec.structs.replace(spec, after=ok, after_any=ended, after_notok=notok)


def named_devices(spec: SubmitRequest) -> tuple[DeviceId, ...] | None:
    """Return the devices that a submission insists on; None: any."""
    return None if spec.device is None else tuple(spec.device.split(","))


def may_use(spec: SubmitRequest, device: DeviceId) -> bool:
    """Return whether a submission allows a device."""
    names = named_devices(spec)
    return names is None or device in names
