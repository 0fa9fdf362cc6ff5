"""The beginning and the end of jobs, and the consequences for other jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from carpool.core.allocators.base import Allocator
from carpool.core.commands import EndJob, RetryJob, SignalJob, TimeOut
from carpool.core.events import JobChanged, ProcessExited, RequeueRequested, Submitted
from carpool.core.lifecycle import limits, retry, submissions
from carpool.core.lifecycle.submissions import changed_spec, explain_dependencies, missed, note_dependencies
from carpool.core.model import Attempt, JobPhase, JobSpec, Micros, Outcome, Reason
from carpool.core.state.job import Job
from carpool.core.state.state import KEPT_ENDED, State
from carpool.core.units import format_duration

SIGKILL, SIGTERM = 9, 15
# Kinds of timers: the job may be tried again; its time to begin has come; it was signalled and has not ended.
PAUSE, BEGIN, KILL = "retry pause", "begin", "kill"


class Lifecycle:
    """Begins and ends the jobs of one core; the allocator gives them devices in between."""

    def __init__(self, state: State, allocator: Allocator) -> None:
        self._state = state
        self._allocator = allocator
        self.timers: Mapping[str, Callable[[Job], None]] = {
            PAUSE: self._pause_over,
            BEGIN: self._may_begin,
            KILL: self._kill,
            limits.WARN: lambda job: limits.warn(state, job),
            limits.LIMIT: self.look_at_limits,
            limits.DEVICE_TIME: self.look_at_limits,
        }

    def submit(self, event: Submitted) -> Job:
        """Add a new job, which waits from now on, or ends at once because it can never run."""
        state = self._state
        spec = retry.spec_after(event.spec, event.past)
        job = Job(event.job, spec, state.arrivals, state.now - event.waited_us)
        job.trusted = bool(state.settings.use_estimates)
        state.arrivals += 1
        state.jobs[job.id] = job
        self._allocator.joined(job)
        if event.past:
            job.past = event.past
        # During a restart the job may turn out to run: then it goes on, whatever has changed since it began.
        reason = (None if state.restarting else self._allocator.impossible(job)) or note_dependencies(state, job)
        if reason is not None:
            self._never(job, reason)
        else:
            self._wait(job, event.pause_us)
        return job

    def _never(self, job: Job, reason: Reason) -> None:
        """End a waiting job that can never run, or never again."""
        self._end(job, Outcome.FAILED if job.past else Outcome.REFUSED, reason=retry.story(job.past, reason))

    def hold(self, job: Job, by: str | None) -> None:
        """Keep a queued job from being placed until it is released (``by`` None)."""
        self._keep_back(job, replace(job.spec, held_by=by))

    def _keep_back(self, job: Job, spec: JobSpec) -> None:
        """Apply ``spec``, by which a queued job is kept from being placed, or is not any more."""
        waited = not job.held_back
        if waited and (spec.held_by is not None or spec.paused_by is not None):
            self._allocator.withdraw(job)
        job.spec = spec
        if not waited or job.barred:
            self._enqueue(job)

    def pause(self, job: Job, by: str | None) -> None:
        """Take the job off its device until it is resumed (``by`` None).  Meanwhile its time limit stands still."""
        spec, before = replace(job.spec, paused_by=by), job.paused
        if job.phase is JobPhase.QUEUED:
            self._keep_back(job, spec)
            return
        job.spec = spec
        if job.paused is not before:
            limits.stop_clock(self._state, job) if job.paused else limits.go_on(self._state, job)
            self._allocator.pause_changed(job)

    def change(self, job: Job, event: JobChanged) -> None:
        """Apply a user's changes to the job's submission."""
        if job.phase is not JobPhase.QUEUED:
            before, job.spec = job.spec, changed_spec(job.spec, event.spec)
            limits.changed(self._state, job, before)
            self._allocator.changed(job)
            return
        if not job.held_back:
            self._allocator.withdraw(job)
        self._state.timers.cancel((BEGIN, job.id))
        job.set(spec=changed_spec(job.spec, event.spec), too_early=False)
        reason = self._allocator.impossible_again(job) or note_dependencies(self._state, job)
        if reason is None:
            self._wait(job, 0)
        else:
            self._end(job, Outcome.REFUSED, reason=retry.story(job.past, reason))

    def requeue(self, job: Job, event: RequeueRequested) -> None:
        """Stop a started job and let it wait for its next attempt when its processes have ended."""
        job.requeued_by = event.by
        self._stop(job)

    def look_at_limits(self, job: Job) -> None:
        """Stop the job if it has reached one of its limits."""
        text = limits.reached(self._state, job)
        if text is not None:
            job.timed_out = text
            self._state.emit(TimeOut(job.id, text))
            self._stop(job)

    def cancel(self, job: Job) -> None:
        """Cancel the job; cancelling it again changes nothing."""
        if job.cancelled:
            return
        job.cancelled = True
        if job.phase is JobPhase.QUEUED:
            self._end(job, Outcome.CANCELLED, reason=Reason("cancelled", "cancelled before it started"))
            return
        self._stop(job)

    def _stop(self, job: Job) -> None:
        """Send SIGTERM, and SIGKILL if the job has not ended a while later.  A paused job is resumed to its end."""
        paused, job.phase = job.paused, JobPhase.STOPPING
        limits.forget(self._state, job)
        self._state.emit(SignalJob(job.id, SIGTERM))
        self._state.timers.set((KILL, job.id), self._state.now + self._state.settings.kill_after_us)
        if paused:
            self._allocator.pause_changed(job)
        self._allocator.stop(job)

    def _kill(self, job: Job) -> None:
        """Kill a job that did not end in time after SIGTERM."""
        job.killed = True
        self._state.emit(SignalJob(job.id, SIGKILL))

    def process_started(self, job: Job) -> None:
        """Record that the job's process runs, and start the clocks of its limits."""
        if job.phase is JobPhase.STARTING:
            job.phase = JobPhase.RUNNING
            limits.begin(self._state, job, self._state.now)
        elif job.phase is JobPhase.STOPPING:
            # Cancelled while it started: the first signal may have found no process.
            self._state.emit(SignalJob(job.id, SIGKILL if job.killed else SIGTERM))

    def start_failed(self, job: Job, text: str) -> None:
        """End a job whose process could not be started; ``text`` says why."""
        outcome = Outcome.CANCELLED if job.cancelled else Outcome.FAILED
        self._end(job, outcome, reason=Reason("start_failed", f"could not be started: {text}"))

    def exited(self, job: Job, event: ProcessExited) -> None:
        """End a job whose process has ended, or let it wait for another attempt."""
        if job.requeued_by and not job.cancelled:
            # A requeue counts as no retry: as many retries as before are left.
            spec = replace(job.spec, retries=job.spec.retries + 1)
            past = Attempt(f"requeued by {job.requeued_by}", job.device)
            self._try_again(job, event, retry.Again(spec, past), at_once=True)
            return
        outcome, reason = _judge(job, event)
        if outcome is Outcome.FAILED and reason is not None:
            verdict = retry.judge(self._state, self._allocator, job, event, reason)
            if isinstance(verdict, retry.Again):
                self._try_again(job, event, verdict)
                return
            reason = verdict
        self._end(job, outcome, code=event.code, signal=event.signal, reason=reason)

    def _try_again(self, job: Job, event: ProcessExited, again: retry.Again, at_once: bool = False) -> None:
        """Free what the job held, and queue it as if it were new.  Jobs that depend on it go on waiting."""
        self._forget_timers(job)
        past = (*job.past, again.past)
        self._state.emit(RetryJob(job.id, len(past) + 1, again.past, again.spec.estimate, event.code, event.signal))
        job.set(phase=JobPhase.QUEUED, attached=False)
        self._allocator.leave(job)
        job.begin_again(spec=again.spec, past=past)
        if not job.recovering:
            to_the_end(self._state, job)
        impossible = self._allocator.impossible_again(job)
        if impossible is None:
            self._wait(job, 0 if at_once else retry.pause_us(again.spec.retry_pause_us, past))
        else:
            self._end(job, Outcome.FAILED, reason=retry.story(past, impossible))

    def _wait(self, job: Job, pause_us: Micros) -> None:
        """Let the job wait from now on, first for the end of its pause and its time to begin, if it has any."""
        if pause_us:
            job.pause_us = pause_us
            self._state.timers.set((PAUSE, job.id), self._state.now + pause_us)
        begin_us = job.spec.begin_us
        if begin_us is not None and begin_us > self._state.now:
            job.too_early = True
            self._state.timers.set((BEGIN, job.id), begin_us)
        self._enqueue(job)

    def _enqueue(self, job: Job) -> None:
        """Queue the job for a device, unless it still waits for something else, such as a place in its array."""
        if job.barred:
            self._leave_place(job)
        elif not job.pause_us and submissions.take_place(self._state, job):
            self._allocator.enqueue(job)

    def _leave_place(self, job: Job) -> None:
        for other in submissions.leave_place(self._state, job):
            self._allocator.enqueue(other)

    def restarted(self) -> None:
        """Begin to decide again after a restart, now that all jobs are known.

        The signal that stops a job is sent again: the earlier daemon may have ended before it sent the signal.
        """
        self._end_impossible()
        self._fill_arrays()
        for job in self._state.jobs.values():
            limits.look_after_restart(self._state, job)
            if job.timed_out and job.phase is JobPhase.STOPPING:
                self._state.emit(SignalJob(job.id, SIGTERM))

    def _end_impossible(self) -> None:
        for job in tuple(self._state.jobs.values()):
            if job.phase is JobPhase.QUEUED and (reason := self._allocator.impossible(job)) is not None:
                self._never(job, reason)

    def _fill_arrays(self) -> None:
        """Give free places in arrays after a restart, when it is known which elements run."""
        for array in list(self._state.arrays):
            for job in submissions.fill(self._state, array):
                self._allocator.enqueue(job)

    def _pause_over(self, job: Job) -> None:
        """Queue the job for its next attempt: the pause before it is over."""
        job.pause_us = 0
        to_the_end(self._state, job)
        self._enqueue(job)

    def _may_begin(self, job: Job) -> None:
        """Queue the job, whose time to begin has come."""
        job.too_early = False
        self._enqueue(job)

    def _end(
        self,
        job: Job,
        outcome: Outcome,
        *,
        code: int | None = None,
        signal: int | None = None,
        reason: Reason | None = None,
    ) -> None:
        """End the job.  Its turn, its memory and its place are free when this returns."""
        self._state.emit(EndJob(job.id, outcome, code, signal, reason))
        job.set(phase=JobPhase.ENDED, outcome=outcome, reason=reason, attached=False)
        self._allocator.leave(job)
        self._state.timers.cancel(("reserve", job.id))
        self._forget_timers(job)
        self._tell_dependents(job)
        self._leave_place(job)
        _forget(self._state, job)

    def _forget_timers(self, job: Job) -> None:
        self._state.timers.cancel_each((PAUSE, BEGIN, KILL, *limits.KINDS), job.id)

    def _tell_dependents(self, job: Job) -> None:
        for number in self._state.dependents.pop(job.id, ()):
            other = self._state.jobs.get(number)
            if other is None or other.phase is not JobPhase.QUEUED or job.id not in other.unmet:
                continue  # it was cancelled meanwhile
            assert job.outcome is not None, "it has ended"
            other.unmet -= {job.id}
            reason = missed(self._state, other.spec, job.id, job.outcome)
            if reason is not None:
                self._end(other, Outcome.REFUSED, reason=reason)
            else:
                self._enqueue(other)

    def explain(self, job: Job) -> Reason | None:
        """Return why a job does not compute now, or how it ended; None: nothing stands in its way."""
        if job.phase is JobPhase.ENDED:
            return job.reason
        if job.phase is JobPhase.QUEUED and job.held_back:
            return self._explain_held_back(job)
        if job.phase is JobPhase.STOPPING and (job.timed_out or job.requeued_by):
            text = job.timed_out or f"requeued by {job.requeued_by}"
            return Reason("stopping", f"{text}; waiting for its processes to end")
        return self._allocator.explain(job)

    def _explain_held_back(self, job: Job) -> Reason:
        """Name the first thing that has to happen before the job can be placed."""
        if job.spec.held_by is not None:
            return Reason("held", f"held by {job.spec.held_by}; carpool release {job.number} lets it start")
        if job.paused:
            return Reason("paused_by_user", job.paused_until("start"))
        if job.unmet:
            return explain_dependencies(self._state, job)
        if job.too_early:
            assert job.spec.begin_us is not None, "only a job with a time to begin is too early"
            return Reason("begin", f"to start in {format_duration(job.spec.begin_us - self._state.now)}")
        if not job.pause_us:
            return submissions.explain_array(job)
        text = f"attempt {len(job.past)} failed; the next one begins after a pause of {format_duration(job.pause_us)}"
        return Reason("pause", text)


def _forget(state: State, job: Job) -> None:
    """Count the job among those that ended last; forget the one that ended longest ago, all but its outcome."""
    state.ended.append(job.id)
    if len(state.ended) > KEPT_ENDED:
        oldest = state.ended.popleft()
        outcome = state.jobs.pop(oldest).outcome
        assert outcome is not None, "it has ended"
        state.pruned_ids.add(oldest, outcome)


def to_the_end(state: State, job: Job) -> None:
    """Move the job behind all others; jobs submitted after it do not count as having overtaken it."""
    if job in state.not_passed:
        state.not_passed.remove(job)
    job.arrival = state.arrivals
    state.arrivals += 1


def _judge(job: Job, event: ProcessExited) -> tuple[Outcome, Reason | None]:
    if job.cancelled:
        return Outcome.CANCELLED, Reason("cancelled", "cancelled")
    if job.timed_out:
        return Outcome.TIMED_OUT, Reason("time_limit", job.timed_out)
    if event.stopped is not None:
        return event.stopped, Reason("time_limit" if event.stopped is Outcome.TIMED_OUT else "cancelled", event.note)
    return _judge_exit(event, f" ({event.note})" if event.note else "")


def _judge_exit(event: ProcessExited, note: str) -> tuple[Outcome, Reason | None]:
    """Return what the exit code or signal says of a job that was not stopped."""
    if event.code is None and event.signal is None:
        if event.joined:
            return Outcome.ENDED, Reason("ended", f"its process has ended{note}; the exit code is unknown")
        return Outcome.LOST, Reason("lost", f"its supervisor vanished{note}; how the job ended is unknown")
    if event.signal is not None:
        return Outcome.FAILED, Reason("signal", f"killed by signal {event.signal}{note}")
    if event.code:
        return Outcome.FAILED, Reason("exit", f"exited with code {event.code}{note}")
    return Outcome.SUCCEEDED, None
