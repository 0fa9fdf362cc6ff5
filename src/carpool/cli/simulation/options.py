"""The values of the options of ``carpool simulate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.core.spelling import did_you_mean
from carpool.protocol.units import parse_time_us

if TYPE_CHECKING:
    from carpool.sim.model.cores import Cores

MOST_LIMITS = 9
#: Begins an estimator's name that means the column estimate_NAME_mib of the trace.
ESTIMATE_COLUMN = "column:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One field per option.  Times are microseconds, sizes are bytes; None: not given."""

    trace: Path | None
    trace_format: str | None
    generator: str | None
    seeds: range | None
    journal: str | None  # "": that of the home directory
    verify: bool
    check: bool
    services: Path | None
    limit: int | None
    save_trace: Path | None
    devices: int
    devices_per_host: int | None  # None: all are in one machine
    policies: tuple[str, ...]
    lanes: bool
    backfill: bool | None
    las_limits_us: tuple[int, ...] | None
    las_unit: str | None  # "time" | "gpu"
    quantum_us: int | None
    settings: tuple[tuple[str, int | None], ...]
    device_memory: int
    oversubscribe: str | None  # "on" | "off" | "auto"
    store: int | None
    copy_rate: int | None  # bytes per second
    slowdown: str
    interference_ppm: int
    telemetry_us: int | None
    warmup_us: int
    warmup_share_ppm: int
    estimator: str | None  # "none", "oracle", "column:NAME"
    preset: str | None
    placement: str | None
    resolution_us: int | None
    switch_cost_us: int | None
    retries: int
    undeclared: tuple[str, ...]  # "duration", "memory"
    since_us: int | None  # wall clock; of a journal
    cores: Cores | str | None  # "calibrated", "none"
    host_devices: bool
    jobs_csv: Path | None
    runs_csv: Path | None
    report: Path | None
    loads: tuple[float, ...] | None
    replicas: int | None
    spread: int | str | None  # millionths, or "measured"
    processes: int | None
    quiet: bool  # no progress on the terminal
    arguments: tuple[str, ...]  # as they were given

    @property
    def all_loads(self) -> Sequence[float | None]:
        """The loads to simulate; None: that of the jobs as they are."""
        return self.loads or (None,)

    @property
    def all_seeds(self) -> Sequence[int | None]:
        """The seeds of the generator to simulate; None: there is none."""
        return self.seeds or ((None,) if self.generator is None else (0,))

    @property
    def several(self) -> bool:
        """Whether each policy is simulated more than once."""
        return self.replicas is not None or len(self.all_seeds) > 1 or len(self.all_loads) > 1


def estimator(text: str) -> str:
    """Return a valid name of an estimator.  Raises ValueError, for people."""
    if text not in ("none", "oracle") and not text.removeprefix(ESTIMATE_COLUMN):
        raise ValueError(f"{text!r} names no column")
    if text not in ("none", "oracle") and not text.startswith(ESTIMATE_COLUMN):
        meant = did_you_mean(text, ("none", "oracle"))
        raise ValueError(f"{text!r} is not an estimator; {meant}use none, oracle or {ESTIMATE_COLUMN}NAME")
    return text


def las_limits(text: str) -> tuple[int, ...]:
    """Parse times with commas between, in microseconds.  Raises ValueError, for people.

    >>> las_limits("3250,2h")
    (3250000000, 7200000000)
    """
    limits = tuple(parse_time_us(part) for part in text.split(","))
    if len(limits) > MOST_LIMITS:
        raise ValueError(f"there are {len(limits)} limits; las has room for {MOST_LIMITS}")
    if any(after <= before for before, after in zip((0, *limits), limits, strict=False)):
        raise ValueError(f"{text!r}: each limit must be larger than the one before it, and the first larger than 0")
    return limits
