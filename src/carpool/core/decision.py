"""What a placement was decided on: values for the journal, the API and people."""

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
    jobs: tuple[JobId, ...]  # who was there
    warming: tuple[JobId, ...]  # those of them that were warming up
    load: Load | None
    key: tuple[int, ...]  # the policy's; smaller comes first
    slowdown_ppm: int | None = None  # the largest that is known between the job and anybody there; None: none is


@dataclass(frozen=True, slots=True)
class Placement:
    """How a job was placed, or (nothing chosen) why it is not: devices in the order in which they are tried."""

    job: JobId
    policy: str
    strict: bool  # devices that do not meet the conditions are closed
    when_us: Micros
    rows: tuple[DeviceRow, ...]
