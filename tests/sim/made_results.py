"""Results made by hand: what a simulation could bring, without one; and what holds for any."""

from __future__ import annotations

from typing import Any

from carpool.core.model import Allocation, Outcome, Settings
from carpool.sim.model.options import Options
from carpool.sim.model.result import JobResult, Recording, Result, Series, Span
from carpool.sim.model.trace_job import TraceJob

SECOND = 1_000_000


def ended(name: str, submit: int, start: int | None, end: int, **facts: Any) -> JobResult:
    """Times in seconds.  It has its devices from its start to its end, unless ``facts`` say otherwise."""
    job = facts.pop("job", None) or TraceJob(name, submit * SECOND, max(1, end - submit) * SECOND)
    service = 0 if start is None else (end - start) * SECOND
    values = {
        "outcome": Outcome.SUCCEEDED,
        "started_us": None if start is None else start * SECOND,
        "service_us": service,
    }
    return JobResult(job=job, ended_us=end * SECOND, **{**values, **facts})


def result(*jobs: JobResult, devices: int = 1, policy: str = "srtf", recording: Recording | None = None) -> Result:
    settings = Settings(policy=policy, allocation=Allocation.DEVICES)
    busy = sum(job.service_us * job.job.gpus for job in jobs)
    return Result(Options(devices=devices, settings=settings), list(jobs), busy, 42, 0.5, recording)


def series(*points: tuple[int, float]) -> Series:
    """Times in microseconds."""
    made = Series()
    for time, value in points:
        made.times.append(time)
        made.values.append(value)
    return made


def recorded(*jobs: JobResult, policy: str = "srtf", devices: int = 1) -> Result:
    """Each job is on device 0 from its start to its end."""
    spans = [Span(number, 0, 0, job.started_us or 0, job.ended_us) for number, job in enumerate(jobs)]
    busy = [series((0, 1.0), (10 * SECOND, 0.0)) for _ in range(devices)]
    return result(*jobs, devices=devices, policy=policy, recording=Recording(spans=spans, busy=busy))


def recording(result: Result) -> Recording:
    assert result.recording is not None
    return result.recording


def check_memory(result: Result) -> None:
    """Whatever happens, no device promises more memory than it has, and in the end it promises none."""
    assert len(recording(result).memory) == result.options.devices
    for series in recording(result).memory:
        assert list(series.times) == sorted(series.times)
        assert all(0 <= value <= result.options.device_memory for value in series.values)
        assert not series.values or series.values[-1] == 0
