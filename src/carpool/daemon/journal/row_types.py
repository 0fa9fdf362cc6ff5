"""The columns of the journal's tables, with the types that they must have to be read."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from carpool.core.model import JobPhase, Outcome

#: Numbers of jobs are exact in every program that reads JSON.
LARGEST_NUMBER = 2**53
Number = Annotated[int, Meta(ge=1, le=LARGEST_NUMBER)]
Count = Annotated[int, Meta(ge=0)]
UserId = Annotated[int, Meta(ge=0, lt=2**32)]


class JobRow(msgspec.Struct, frozen=True):
    """A row of the table `jobs`."""

    id: Number
    owner: UserId
    gid: UserId
    spec: str
    env: str
    estimate: str | None
    submitted_us: Count
    cancelled: Count
    phase: JobPhase
    device: str | None
    outcome: Outcome | None
    exit_code: int | None
    signal: int | None
    reason_code: str | None
    reason_text: str | None
    persistent_bytes: Count
    ephemeral_bytes: Count
    iterations: Count
    device_us: Count
    switches: Count
    residue_bytes: Count
    started_us: Count | None
    ended_us: Count | None
    out_bytes: Count
    out_us: Count
    in_bytes: Count
    in_us: Count


class AttemptRow(msgspec.Struct, frozen=True):
    """A row of the table `attempts`."""

    job: Number
    attempt: Number
    last: Annotated[int, Meta(ge=0, le=1)]
    device: str | None
    started_us: Count | None
    ended_us: Count
    exit_code: int | None
    signal: int | None
    out_of_memory: Count
    outgrown_bytes: Count
    reason: str
    persistent_bytes: Count
    ephemeral_bytes: Count
    estimate: str | None
    log: str


class RunRow(msgspec.Struct, frozen=True):
    """A row of the table `runs`."""

    command_key: str
    ended_us: Count
    persistent_bytes: Count
    ephemeral_bytes: Count
    iterations: Count
    iteration_us: Count | None


class PlacementOfJob(msgspec.Struct, frozen=True):
    """A row of the table `placements`."""

    job: Number
    devices: str


class FigureRow(msgspec.Struct, frozen=True):
    """A row of the table `history` with a figure of the core."""

    key: str
    owner: int
    end_us: int
    value: bytes


class ModelRow(msgspec.Struct, frozen=True):
    """A row of the table `models`."""

    owner: UserId
    name: str
    spec: str
    env: str
    added_us: Count


class NoticeRow(msgspec.Struct, frozen=True):
    """A row of the table `notices`."""

    job: Number
    attempt: Count
    event: str
    place: Count
    notice: str
    state: str
    tries: Count
    text: str


class MetaRow(msgspec.Struct, frozen=True):
    """A row of the table `meta`."""

    key: str
    value: str


class EventNumber(msgspec.Struct, frozen=True):
    """What the daemon reads of the table `events` at its start."""

    seq: Number
