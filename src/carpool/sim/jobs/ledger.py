"""The records of a simulation: what became of each job, and (if requested) which job was where."""

from __future__ import annotations

from collections.abc import Sequence

from carpool.core.commands import EndJob
from carpool.core.model import JobId, Micros, Outcome
from carpool.sim.model.options import Options
from carpool.sim.model.result import JobResult, Recording, Series, Span
from carpool.sim.model.served_models import ServicesResult
from carpool.sim.model.trace_job import TraceJob


class Ledger:
    """``place`` maps a job of the core to its job in the trace: each attempt has a number of its own."""

    def __init__(self, jobs: Sequence[TraceJob], options: Options) -> None:
        self.results = [JobResult(job, Outcome.LOST, None, job.submit_us, 0) for job in jobs]
        self.place: dict[JobId, int] = {}
        self.recording = Recording() if options.record else None
        self.busy_ppm_us = 0  # device time, weighted by the share of the device that was used
        self.occupied_us = 0  # time of all devices in which at least one job computed there
        self.left_us = 0  # time of all devices in which jobs were there, and no service computed
        self.services: ServicesResult | None = None
        self.left = len(jobs)  # number of jobs that have not ended, and of workers of services
        self._devices = options.devices

    def result(self, number: JobId) -> JobResult:
        """Return the record of a job, by the core's number."""
        return self.results[self.place[number]]

    def span(self, number: JobId, device: int, lane: int, begin_us: Micros, end_us: Micros) -> None:
        """Record that the job was on a device."""
        if self.recording is not None and end_us > begin_us:
            self.recording.spans.append(Span(self.place[number], device, lane, begin_us, end_us))

    def ended(self, command: EndJob, now: Micros) -> None:
        """Record that a job of the trace has ended for good."""
        result = self.result(command.job)
        result.outcome, result.ended_us = command.outcome, now
        result.reason = command.reason.text if command.reason else ""
        self.left -= 1

    def finished_recording(self) -> Recording | None:
        """Return the recording, with the series of whole devices, which follow from the spans."""
        recording = self.recording
        if recording is not None and not recording.busy:
            recording.busy = _busy(recording.spans, self._devices)
        return recording


def _busy(spans: Sequence[Span], devices: int) -> list[Series]:
    """Return series that are 1 while a job has a device, 0 otherwise."""
    series = [Series() for _ in range(devices)]
    for span in sorted(spans, key=lambda span: span.begin_us):
        one = series[span.device]
        if one.times and one.times[-1] == span.begin_us:
            one.times.pop()
            one.values.pop()
        else:
            one.times.append(span.begin_us)
            one.values.append(1.0)
        one.times.append(span.end_us)
        one.values.append(0.0)
    return series
