"""The simulator's side of the core: the trace, the modelled jobs, and their planned events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from carpool.core.commands import Command
from carpool.core.events import DeviceAdded, Event, Submitted
from carpool.core.model import Allocation, DeviceId, DeviceSpec, JobId, Micros, Sharing
from carpool.sim.jobs.lane_jobs import LaneJobs
from carpool.sim.jobs.ledger import Ledger
from carpool.sim.model.agenda import Agenda
from carpool.sim.model.job_specs import attempt_of, spec_of
from carpool.sim.model.options import Options, Timeslice
from carpool.sim.model.served_models import Services
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.services.engines import EngineJobs
from carpool.sim.services.workers import ServiceJobs
from carpool.sim.whole_devices.jobs import WholeDeviceJobs


class Scene:
    """Reacts to commands at once, or later: call `run` when `next` says so, before the core's own timers.

    ``post`` receives the events, for the core of the driver.
    """

    def __init__(self, jobs: Sequence[TraceJob], options: Options, post: Callable[[Event], object]) -> None:
        self.now: Micros = 0
        self.post = post
        self._options = options
        if options.host_devices:
            jobs = [job.on_host_devices() for job in jobs]
        self._agenda = Agenda()
        self.plan = self._agenda.plan
        self._trace = jobs
        self._order = sorted(range(len(jobs)), key=lambda place: jobs[place].submit_us)
        self._arrived = 0
        self._arrival: Micros | None = None  # when the next job arrives
        self._look_ahead()
        self._numbers = len(jobs)
        self._services: list[ServiceJobs | EngineJobs] = []
        self._devices: dict[DeviceId, int] = {f"gpu{number}": number for number in range(options.devices)}
        self.ledger = Ledger(jobs, options)
        whole = options.settings.allocation is Allocation.DEVICES
        self._jobs = (WholeDeviceJobs if whole else LaneJobs)(self, self.ledger, options, self._devices)
        self._jobs.retry = self._retry
        self.execute: Callable[[Command], None] = self._jobs.execute
        if options.services is not None and isinstance(self._jobs, LaneJobs):
            self._serve(options, self._jobs, options.services)

    def _serve(self, options: Options, jobs: LaneJobs, services: Services) -> None:
        """Add the workers of services, numbered after the jobs of the trace, and engines, numbered as they start.

        Commands that concern one of them are passed to it only.
        """
        names, first = tuple(self._devices), self._numbers + 1
        if services.models:
            self._services.append(ServiceJobs(self, self.ledger, options, names, jobs.devices, services, first))
            self._numbers += len(names) * services.workers
        if services.engines:
            devices = dict(zip(names, jobs.devices, strict=True))
            self._services.append(EngineJobs(self, self.ledger, options, devices, services.engines, self._next_number))

        def execute(command: Command) -> None:
            next((one for one in self._services if one.concerns(command)), jobs).execute(command)

        self.execute = execute

    def _next_number(self) -> JobId:
        self._numbers += 1
        return self._numbers

    def begin(self) -> None:
        """Add the devices, and begin."""
        memory, mode = self._options.device_memory, self._options.oversubscribe
        sliced = isinstance(self._options.interference, Timeslice)
        sharing = Sharing.TIMESLICE if sliced else Sharing.CONCURRENT
        for name in self._devices:
            self.post(DeviceAdded(DeviceSpec(name, memory, oversubscribe=mode, sharing=sharing)))
        self._jobs.begin()
        for services in self._services:
            services.begin()

    def next(self) -> Micros | None:
        """Return the time of the next event of a job, or the next arrival; None if there is none."""
        planned, arrival = self._agenda.next(), self._arrival
        if arrival is None:
            return planned
        return arrival if planned is None or arrival < planned else planned

    def _look_ahead(self) -> None:
        more = self._arrived < len(self._order)
        self._arrival = self._trace[self._order[self._arrived]].submit_us if more else None

    def run(self, now: Micros) -> None:
        """Run the jobs' events of this moment, then arrivals in the order of the trace, and their immediate effects."""
        self.now = now
        self._agenda.run(now)
        if self._arrival is None or self._arrival > now:
            return
        while self._arrival is not None and self._arrival <= now:
            place = self._order[self._arrived]
            self._arrived += 1
            self._look_ahead()
            self._submit(self._arrived, place, True)
        self._agenda.run(now)

    def unfinished(self) -> dict[JobId, TraceJob]:
        """Return the jobs that have not ended, by their number in the core."""
        return {number: self._trace[self.ledger.place[number]] for number in sorted(self._jobs.unfinished)}

    def _submit(self, number: JobId, place: int, first: bool) -> None:
        job = self._trace[place]
        self.ledger.place[number] = place
        attempt = attempt_of(job, first)
        self._jobs.submitted(number, job, attempt)
        self.post(Submitted(number, spec_of(job, attempt, self._options)))

    def _retry(self, number: JobId) -> bool:
        """Submit a failed job again, at once; return False if it has had all its attempts."""
        place = self.ledger.place[number]
        result = self.ledger.results[place]
        if result.attempts - result.recoveries > self._options.retries:
            return False
        result.attempts += 1
        self.plan(self.now, self._submit, self._next_number(), place, False)
        return True
