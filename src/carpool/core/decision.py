"""The figures on which a placement was decided: values for the journal, the API and users."""

from __future__ import annotations

from dataclasses import dataclass

from carpool.core.model import DeviceId, JobId, Load, Micros, Reason


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One device as it was when it was considered for a job.  Sizes are bytes."""

    device: DeviceId
    chosen: bool
    refusal: Reason | None  # why it could not take the job; None: it could
    reluctance: Reason | None  # which condition it did not meet, so that it was tried last
    free: int
    need: int  # what would be reserved for the job there
    margin: int  # what would have to stay free besides, if others are there
    jobs: tuple[JobId, ...]  # the jobs there
    warming: tuple[JobId, ...]  # the ones of ``jobs`` that were warming up
    load: Load | None
    key: tuple[int, ...]  # the policy's; smaller comes first
    slowdown_ppm: int | None = None  # the largest known between the job and a job there; None: unknown


@dataclass(frozen=True, slots=True)
class Placement:
    """How a job was placed, or (nothing chosen) why it is not: devices in the order in which they are tried."""

    job: JobId
    policy: str
    strict: bool  # devices that do not meet the conditions are closed
    when_us: Micros
    rows: tuple[DeviceRow, ...]
