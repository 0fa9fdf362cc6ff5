"""Turns of modelled jobs, which compute and give way; `carpool.sim.jobs.lane_jobs` has the rest of their behaviour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from carpool.core.events import (
    MemoryRequested,
    OffloadFailed,
    ProcessExited,
    Sampled,
    TurnPassed,
    TurnReleased,
    TurnWanted,
)
from carpool.core.model import Cause, JobId, Micros
from carpool.sim.jobs.job_progress import HostPhase
from carpool.sim.jobs.ledger import Ledger
from carpool.sim.jobs.modelled_device import ModelledDevice
from carpool.sim.jobs.modelled_host import ModelledHost
from carpool.sim.jobs.modelled_job import Doing, SeatedJob
from carpool.sim.model.agenda import Driver

Devices = Sequence[ModelledDevice]
Hosts = Sequence[ModelledHost]  # by device; empty: work on a host is never slowed


class TurnTaking:
    """The turns of the jobs in ``jobs``, which have been submitted, and the next event of each job.

    ``let_go`` is called when a job that was asked to yield, or is watched, has reached a point at which it can let go.
    """

    def __init__(
        self, driver: Driver, ledger: Ledger, hosts: Hosts, devices: Devices, jobs: Mapping[JobId, SeatedJob],
        let_go: Callable[[SeatedJob, Cause], None],
    ) -> None:  # fmt: skip
        self._driver = driver
        self._ledger = ledger
        self._devices = devices
        self._hosts = hosts
        self._jobs = jobs
        self._let_go = let_go

    def _device(self, job: SeatedJob) -> ModelledDevice:
        return self._devices[job.device]

    # The script

    def go_on(self, job: SeatedJob) -> None:
        """Run the script on, up to where it lacks memory or the turn."""
        need = job.need()
        if need is not None:
            job.doing, job.asked = Doing.MEMORY, need[0]
            self._watch_waiting(job)
            self._driver.post(MemoryRequested(job.number, *need))
            return
        job.content = job.wanted.persistent
        if not job.holds:
            job.doing = Doing.TURN
            if job.paused:
                return
            if len(self._device(job).computing()) < 2:  # with more than two lanes nothing is learned
                self.tell(job)
            self._driver.post(TurnWanted(job.number))
        else:
            self._compute(job)

    def tell(self, about: SeatedJob) -> None:
        """Report the counters of jobs whose co-runners may change, before ``about`` comes or goes.

        A live daemon reads the counters several times a second; the essential reading is that at a change of
        co-runners.
        """
        for job in self._device(about).computing():
            if job.job.model and (job.lane != about.lane or job is about):
                self._driver.post(Sampled(job.number, job.usage(self._driver.now)))

    def computed(self, job: SeatedJob) -> None:
        """End the turn after the last iteration: the process goes on, and keeps its memory, until it ends."""
        motion = job.motion
        if motion.end_us == motion.computed_us:
            self.exit(job, job.attempt.code)
        else:
            motion.advance(self._driver.now)
            job.yield_asked = None  # the job does not come back for another turn
            self._let_go(job, Cause.EARLY)

    def exit(self, job: SeatedJob, code: int, out_of_memory: str | None = None) -> None:
        """End the job's process.  ``out_of_memory``: what was denied, if that is why."""
        self.tell(job)
        self._driver.post(ProcessExited(job.number, code, out_of_memory=out_of_memory))

    # Turns

    def grant(self, job: SeatedJob) -> None:
        """Give the job a turn from the core."""
        self._take_turn(job)
        self._run(job, job.turns)

    def _take_turn(self, job: SeatedJob) -> None:
        """Set the turn in the job's seat: from now on a successor may be named, and the job asked to yield."""
        now = self._driver.now
        job.holds, job.began_us, job.yield_asked, job.successor, job.watched_at = True, now, None, None, None
        job.pause_asked = False
        job.start_us = job.motion.position_us()
        job.turns += 1
        if job.result.started_us is None:
            job.result.started_us = now

    def _run(self, job: SeatedJob, turn: int) -> None:
        """Wake the job up, unless it has lost that turn already."""
        if not job.holds or job.turns != turn:
            return
        if job.leaves_us is not None:
            self.stays(job)
        delay = job.store.return_us + (job.switch_us if turn > 1 else 0)
        if delay:
            job.doing = Doing.SWITCHING
            self.plan(job, self._driver.now + delay, self.switched)
        else:
            self.switched(job)

    def switched(self, job: SeatedJob) -> None:
        """Continue after a switch, with all memory restored."""
        self._bring_back(job)
        self.go_on(job)

    def _bring_back(self, job: SeatedJob) -> None:
        """Restore from the store as much as there was time for since the turn began."""
        if job.store.stored:
            job.store.returned(self._driver.now - job.began_us)

    def stays(self, job: SeatedJob) -> None:
        """Report that an offload failed: a peer passed the job a turn before it had left."""
        job.leaves_us = None
        self._driver.post(OffloadFailed(job.number, "it got a turn first"))

    def _compute(self, job: SeatedJob) -> None:
        job.doing = Doing.COMPUTING
        job.motion.begin(self._driver.now)
        changed: list[SeatedJob] = []
        for number in (job.device, *job.further):
            changed += self._devices[number].enter(job, self._driver.now)
        if job.cores_ppm:
            changed += self._hosts[job.device].enter(job, job.cores_ppm, self._driver.now)
        self._speeds_changed(job, changed)

    def _speeds_changed(self, job: SeatedJob | None, others: list[SeatedJob]) -> None:
        for other in others:
            if other.phase is not None:
                self._plan_phase(other, other.phase)
            elif other is not job:
                self._plan_next(other)
        if job is not None:
            self._plan_next(job)

    def leave_turn(self, job: SeatedJob) -> None:
        """Stop computing, and end the turn."""
        now = self._driver.now
        job.plan += 1
        if job.doing is Doing.COMPUTING:
            self._rest(job)
        elif job.doing is Doing.SWITCHING:
            self._bring_back(job)
        for number in (job.device, *job.further):
            self._ledger.span(job.number, number, job.lane, job.began_us, now)
        job.held_us += now - job.began_us
        job.holds, job.watched_at, job.pause_asked = False, None, False

    def give_way(self, job: SeatedJob, cause: Cause) -> None:
        """Pass the turn to the successor in the seat, or back; then continue as far as possible without it."""
        if job.yield_asked is not None:
            job.result.preemptions += 1
        heir = self._jobs.get(job.successor) if job.successor is not None else None
        was = job.doing
        self.leave_turn(job)
        usage = job.usage(self._driver.now)
        if heir is None:
            self._driver.post(TurnReleased(job.number, cause, usage))
        else:
            self._take_turn(heir)
            turn = heir.turns
            self._driver.post(TurnPassed(job.number, heir.number, cause, usage))
            self._run(heir, turn)
        if cause is Cause.EARLY and was is Doing.COMPUTING:
            self.finish_on_host(job)
        elif was is not Doing.MEMORY:
            self.go_on(job)

    def finish_on_host(self, job: SeatedJob) -> None:
        """Run on without the device: the rest of the iteration, or after the last one until the process ends."""
        motion = job.motion
        position = motion.position_us()
        last = position >= motion.computed_us
        end = motion.end_us if last else min(motion.lump_end_after(position), motion.computed_us)
        self.work_on_host(job, end, self.back_from_host)

    def work_on_host(self, job: SeatedJob, position_us: Micros, then: Callable[[SeatedJob, Micros], None]) -> None:
        """Let the job work without the device up to a position, and then go on with ``then``."""
        now = self._driver.now
        length = position_us - job.motion.position_us()
        job.doing, job.back = Doing.HOST, (position_us, now + length)
        if self._hosts and length and (cores_ppm := job.host_cores_ppm()):
            job.phase = HostPhase(length, now, then)
            self._speeds_changed(None, self._hosts[job.device].enter(job, cores_ppm, now))
            self._plan_phase(job, job.phase)
        else:
            self.plan(job, job.back[1], then, position_us)

    def _plan_phase(self, job: SeatedJob, phase: HostPhase) -> None:
        self.plan(job, phase.end(), self._worked, phase)

    def _worked(self, job: SeatedJob, phase: HostPhase) -> None:
        self.leave_host(job)
        phase.then(job, job.back[0])

    def leave_host(self, job: SeatedJob) -> Micros:
        """Stop working without the device; return how much of that work is left."""
        phase, now = job.phase, self._driver.now
        job.plan += 1
        if phase is None:
            return job.back[1] - now
        job.phase = None
        self._speeds_changed(None, self._hosts[job.device].leave(job, now))
        return phase.left_us(now)

    def back_from_host(self, job: SeatedJob, position_us: Micros) -> None:
        """Go on at a position that the job has reached on the host."""
        motion = job.motion
        motion.skip_to(position_us)
        if position_us >= motion.end_us:
            self.exit(job, job.attempt.code)
        elif position_us >= motion.computed_us:
            self.finish_on_host(job)
        else:
            self.go_on(job)

    # The seat

    def request_yield(self, job: SeatedJob, forced: bool) -> None:
        """Ask the job for its turn at the next boundary, or at once if ``forced``; no effect if it has none."""
        if not job.holds:
            return
        job.yield_asked, job.pause_asked = Cause.FORCED if forced else Cause.BOUNDARY, False
        if forced:
            self.give_way(job, Cause.FORCED)
        else:
            self.watch(job, True)

    def watch_idle(self, job: SeatedJob, grace_us: Micros) -> None:
        """Set the grace: the job loses its turn if it is off the device for longer than ``grace_us``."""
        job.grace_us = grace_us
        if job.holds:
            self.watch(job, job.idles())

    def watch(self, job: SeatedJob, changes: bool) -> None:
        """Watch, from now on or still, whether the job uses the device."""
        if job.watched_at is None:
            job.motion.advance(self._driver.now)
            job.watched_at = job.motion.position_us()
        if job.doing is Doing.COMPUTING and changes:
            self._plan_next(job)
        elif job.doing is Doing.MEMORY:
            self._watch_waiting(job)

    def _watch_waiting(self, job: SeatedJob) -> None:
        """Plan the early release of a watched job that waits for memory, and so does not use the device."""
        if job.watched_at is not None:
            self.plan(job, self._driver.now + job.grace_us, self._let_go, Cause.EARLY)

    def withdraw_yield(self, job: SeatedJob) -> None:
        """Let the job keep its turn."""
        job.yield_asked, job.watched_at, job.pause_asked = None, None, False
        if job.doing is Doing.COMPUTING:
            self._plan_next(job)
        elif job.holds and job.doing is Doing.MEMORY:
            job.plan += 1

    # The next event of a computing job

    def plan(self, job: SeatedJob, when: Micros, call: Callable[..., None], *arguments: Any) -> None:
        """Plan a call for the job, in place of the previous plan."""
        job.plan += 1
        self._driver.plan(when, self._if_meant, job, job.plan, call, arguments)

    @staticmethod
    def _if_meant(job: SeatedJob, plan: int, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if job.plan == plan:
            call(job, *arguments)

    def _plan_next(self, job: SeatedJob) -> None:
        motion, now = job.motion, self._driver.now
        motion.advance(now)
        end = motion.when(motion.computed_us), 0, self.computed, ()
        places: list[tuple[Micros, int, Callable[..., None], tuple[Any, ...]]] = [end]
        if job.grows_at is not None:
            places.append((motion.when(job.grows_at), 1, self._grows, ()))
        if job.sample_at is not None:
            places.append((motion.when(job.sample_at), 2, self._sampled, ()))
        early = job.early_at()
        if early is not None:
            places.append((motion.when(early), 3, self._let_go, (Cause.EARLY,)))
        if job.yield_asked is not None or job.pause_asked:
            places.append((motion.when(job.boundary_at()), 4, self._let_go, (Cause.BOUNDARY,)))
        when, _, call, arguments = min(places, key=lambda place: place[:2])
        self.plan(job, when, call, *arguments)

    def _grows(self, job: SeatedJob) -> None:
        """End the warm-up: the job now needs all of its memory, and computes when it has got it."""
        job.needs_all()
        self._rest(job)
        self.go_on(job)

    def _rest(self, job: SeatedJob) -> None:
        """Stop computing."""
        job.motion.stop(self._driver.now)
        changed: list[SeatedJob] = []
        for number in (job.device, *job.further):
            changed += self._devices[number].leave(job, self._driver.now)
        if job.cores_ppm:
            changed += self._hosts[job.device].leave(job, self._driver.now)
        self._speeds_changed(None, changed)

    def _sampled(self, job: SeatedJob) -> None:
        job.sample_at = None
        self._plan_next(job)  # before the core is told, and may take the turn
        self._driver.post(Sampled(job.number, job.usage(self._driver.now)))
