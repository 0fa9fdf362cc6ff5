"""The columns of Carpool's own trace files: how each is read, written and explained.  docs/traces.md has the same.

Duration, iterations and their length: values that a trace leaves out follow from the others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial
from typing import Any

from carpool.sim.model.trace_job import WHOLE_PPM, TraceJob
from carpool.sim.traces.numbers import Unfit, decimal, is_zero, mebibytes, print_decimal, print_mebibytes, whole

#: Default values of `TraceJob`.
DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(TraceJob) if field.default is not MISSING}


@dataclass(frozen=True, slots=True)
class Column:
    """``parse`` raises Unfit for what does not follow ``rule``; cells that are empty never reach it."""

    name: str
    field: str  # of `TraceJob`
    parse: Callable[[str], Any]
    show: Callable[[Any], str]
    rule: str  # follows "it must be"
    about: str
    required: bool = False

    @property
    def estimator(self) -> str | None:
        """The estimator's name in a column that `column_named` has made of `ESTIMATE`, else None."""
        return self.name[len(_BEFORE) : -len(_AFTER)] if self.field == ESTIMATE.field else None


def _above_zero(cell: str, digits: int) -> int:
    value = decimal(cell, digits)
    if value == 0 and is_zero(cell):
        raise Unfit("no time at all")
    return value or 1  # for times shorter than a microsecond


def _share(cell: str) -> int:
    value = decimal(cell, 6)
    if value > WHOLE_PPM or (value == 0 and is_zero(cell)):
        raise Unfit
    return value or 1


def positive(cell: str) -> int:
    """Return a whole number of at least 1.  Raises Unfit."""
    value = whole(cell)
    if value < 1:
        raise Unfit
    return value


def _id(cell: str) -> str:
    if not cell.strip():
        raise Unfit
    return cell


seconds = partial(decimal, digits=6)
some_seconds = partial(_above_zero, digits=6)
milliseconds = partial(decimal, digits=3)
some_milliseconds = partial(_above_zero, digits=3)
_print_us = partial(print_decimal, digits=6)
_print_ms = partial(print_decimal, digits=3)

_TIME = "a number of seconds greater than 0"
_ANY_TIME = "a number of seconds, 0 or more"
_MIB = "a number of MiB, 0 or more"
_COUNT = "a whole number of at least 1"
_SHARE = "a number greater than 0 and at most 1"

COLUMNS = (
    Column("job_id", "id", _id, str, "a name", "any text that no other job has", required=True),
    Column("submit_s", "submit_us", seconds, _print_us, _ANY_TIME, "when the job arrives", required=True),
    Column("gpus", "gpus", positive, str, _COUNT, "devices that the job needs at once"),
    Column("duration_s", "duration_us", some_seconds, _print_us, _TIME, "how long the job takes alone"),
    Column("iterations", "iterations", positive, str, _COUNT, "how often the job repeats its step"),
    Column("iteration_ms", "iteration_us", some_milliseconds, _print_ms, "a number of milliseconds greater than 0",
           "device time of one iteration"),
    Column("host_ms", "host_us", milliseconds, _print_ms, "a number of milliseconds, 0 or more",
           "host time of one iteration"),
    Column("persistent_mib", "persistent", mebibytes, print_mebibytes, _MIB, "memory kept between iterations"),
    Column("ephemeral_mib", "ephemeral", mebibytes, print_mebibytes, _MIB, "memory needed within an iteration only"),
    Column("utilization", "utilization_ppm", _share, _print_us, _SHARE,
           "share of the device that the job uses while it computes alone"),
    Column("occupancy", "occupancy_ppm", _share, _print_us, _SHARE,
           "how well it occupies multiprocessors then (SMOCC)"),
    Column("dram", "dram_ppm", _share, _print_us, _SHARE, "how busy it keeps the device's memory then (DRAMA)"),
    Column("model", "model", sys.intern, str, "a name", "what the job trains or serves; for reports"),
    Column("weight", "weight", positive, str, _COUNT, "share of the device under `fair`"),
    Column("deadline_s", "deadline_us", seconds, _print_us, _ANY_TIME, "wanted completion, counted from submission"),
    Column("owner", "owner", whole, str, "a whole number, 0 or more", "jobs of different owners never share a lane"),
    Column("fails_at", "fails_at_ppm", _share, _print_us, _SHARE, "the first attempt dies at this share of its work"),
    Column("checkpoint_s", "checkpoint_us", some_seconds, _print_us, _TIME,
           "a later attempt goes on from the last multiple of this"),
    Column("cores", "cores_ppm", partial(decimal, digits=6), _print_us, "a number of cores, 0 or more",
           "cores of the machine that its computing demands, on a host device"),
    Column("switch_ms", "switch_us", milliseconds, _print_ms, "a number of milliseconds, 0 or more",
           "time that it loses with each turn that it comes back to"),
    Column("end_s", "end_us", seconds, _print_us, _ANY_TIME,
           "host time after the last iteration, part of the duration"),
    Column("startup_cpu_s", "startup_cpu_us", seconds, _print_us, _ANY_TIME, "processor time of start-up"),
    Column("end_cpu_s", "end_cpu_us", seconds, _print_us, _ANY_TIME,
           "processor time of the host time after the last iteration"),
)  # fmt: skip

BY_NAME = {column.name: column for column in COLUMNS}

#: Any number of columns, each with a name of its own where this one has NAME.
ESTIMATE = Column("estimate_NAME_mib", "estimates", mebibytes, print_mebibytes, _MIB,
                  "what an estimator called NAME says of its peak memory; empty: nothing")  # fmt: skip
_BEFORE, _AFTER = ESTIMATE.name.split("NAME")


def column_named(name: str) -> Column | None:
    """Return the column of this name; None if there is no such column."""
    if name in BY_NAME:
        return BY_NAME[name]
    if name.startswith(_BEFORE) and name.endswith(_AFTER) and len(name) > len(_BEFORE) + len(_AFTER):
        return replace(ESTIMATE, name=name)
    return None


def estimate_column(estimator: str) -> Column:
    """Return the column for that estimator's estimate of the job's memory, as `column_named` finds it again."""
    return replace(ESTIMATE, name=f"{_BEFORE}{estimator}{_AFTER}")


ROUNDING = 1000  # a duration may be shorter than its iterations by one part in this many


def complete(fields: dict[str, Any]) -> None:
    """Fill in ``duration_us``, ``iterations`` and ``iteration_us`` of a job.  Raises ValueError with the reason.

    With all three given, the part of the duration beyond the iterations and ``end_us`` is start-up on the host.
    """
    duration, count, each = fields.get("duration_us"), fields.get("iterations"), fields.get("iteration_us")
    host, end = fields.get("host_us", 0), fields.get("end_us", 0)
    if count is not None and each is not None:
        fields["duration_us"] = _duration(duration, count * (each + host) + end)
    elif duration is None:
        raise ValueError("there is neither duration_s nor iterations with iteration_ms; give one of them")
    elif end >= duration:
        raise ValueError(f"end_s leaves nothing of duration_s, which is {print_decimal(duration, 6)}; make it shorter")
    elif each is not None:
        _count(fields, duration - end, each, host)
    elif count is not None:
        fields["iteration_us"] = _each(duration - end, count, host)
    elif host:
        raise ValueError("there is host_ms without iterations; add iterations or iteration_ms, or leave host_ms empty")


def _duration(duration: int | None, busy: int) -> int:
    """Return the duration.  ``busy``: the least that it can be."""
    if duration is None:
        return busy
    if duration + busy // ROUNDING < busy:
        raise ValueError(
            f"duration_s is {print_decimal(duration, 6)}, but the iterations alone take {print_decimal(busy, 6)} s; "
            "make it longer, or leave it empty"
        )
    return max(duration, busy)


def _count(fields: dict[str, Any], duration: int, each: int, host: int) -> None:
    """Set as many whole iterations as there is time for; if there is less than for one, a single, shorter one."""
    if duration < each + host:
        fields["host_us"] = min(host, duration - 1)
        fields["iteration_us"] = duration - fields["host_us"]
    fields["iterations"] = max(1, duration // (each + host))


def _each(duration: int, count: int, host: int) -> int:
    each = duration // count - host
    if each < 1:
        raise ValueError(
            f"duration_s leaves no device time for {count} iterations; make it longer, or give fewer iterations"
        )
    return each
