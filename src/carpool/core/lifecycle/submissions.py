"""Checks of submissions, and which of their fields may change until the job has ended."""

from __future__ import annotations

from dataclasses import replace

from carpool.core.model import JobSpec

#: Fields of `JobSpec` that `JobChanged` changes.
CHANGEABLE = (
    *("name", "weight", "iterations", "duration_us", "device", "after", "after_any", "after_notok", "begin_us"),
    *("time_us", "device_time_us", "limit_signal", "limit_signal_us", "group"),
)
LARGEST_SIGNAL = 64
#: Fields of `JobSpec` that are at least 1, if they are set at all.
_AT_LEAST_ONE = ("weight", "iterations", "duration_us", "time_us", "device_time_us")


def changed_spec(spec: JobSpec, wanted: JobSpec) -> JobSpec:
    """Return ``spec`` with the `CHANGEABLE` fields of ``wanted``; what attempts have taught about memory stays."""
    return replace(spec, **{name: getattr(wanted, name) for name in CHANGEABLE})


def check_spec(spec: JobSpec) -> None:
    """Raise ValueError for a submission that makes no sense."""
    for name in _AT_LEAST_ONE:
        value = getattr(spec, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")
    if spec.gang < 1:
        raise ValueError(f"gang is {spec.gang}; a job needs at least 1 device")
    if spec.device is not None and not spec.device:
        raise ValueError("the job may use no device at all")
    if spec.service is not None and (spec.needs_several or spec.exclusive or spec.checkpoint):
        raise ValueError("a service shares its device by grant: it cannot be exclusive, nor have several devices")
    _check_counts(spec)
    _check_limits(spec)


def _check_counts(spec: JobSpec) -> None:
    if spec.retries < 0 or spec.retry_pause_us < 0:
        raise ValueError(f"retries is {spec.retries}, after {spec.retry_pause_us} us; both must be at least 0")
    if spec.at_most < 0 or (spec.at_most and spec.array is None):
        raise ValueError(f"at_most is {spec.at_most}; it must be at least 0, and is for elements of arrays")
    if spec.estimate is not None and min(spec.estimate.memory.persistent, spec.estimate.memory.ephemeral) < 0:
        raise ValueError(f"the memory estimate {spec.estimate.memory} is negative")


def _check_limits(spec: JobSpec) -> None:
    if not 0 <= spec.limit_signal <= LARGEST_SIGNAL or spec.limit_signal_us < 0:
        text = f"limit_signal is {spec.limit_signal}, {spec.limit_signal_us} us before the limit"
        raise ValueError(f"{text}; it must be between 0 (none) and {LARGEST_SIGNAL}, and the time at least 0")
