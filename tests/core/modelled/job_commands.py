"""Commands that begin and end attempts of jobs, each with what must hold when it comes."""

from __future__ import annotations

from dataclasses import replace

from carpool.core import commands, events
from carpool.core.model import JobId, Memory, Outcome, Oversubscribe, alone_after
from tests.core.modelled.facts import Facts
from tests.core.seats import Process, Program
from tests.core.serving import EngineProcess, ServiceProcess
from tests.core.suspended import Suspended


class JobCommands(Facts):
    """A process appears where the core has placed it."""

    def _startjob(self, command: commands.StartJob) -> None:
        process = self.processes[command.job]
        assert not process.alive and command.job not in self.ended
        spec = self.specs[command.job]
        assert spec.held_by is None and spec.paused_by is None and self.now >= (spec.begin_us or 0), (
            "it must not start yet"
        )
        assert all(
            number in self.ended and kind.met_by(self.ended[number].outcome)
            for kind, numbers in spec.dependencies
            for number in numbers
        )
        past = self.past.get(command.job, ())
        if alone_after(past):
            beside = [each for each in self.home if self._present(each) and command.device in self.on(each)]
            assert not beside, f"job {command.job} has run out of memory, and is started beside {beside}"
            assert all(self.devices[command.device] > attempt.outgrown for attempt in past), "the same again"
        self._check_placement(command)
        process.alive, process.lane, self.home[command.job] = True, command.lane, command.device
        self.further[command.job] = command.further
        process.send(events.ProcessStarted(command.job))

    def _check_placement(self, command: commands.StartJob) -> None:
        """All devices or none, to itself where that was asked for, and as its record says."""
        spec, decision = self.specs[command.job], command.decision
        devices = (command.device, *command.further)
        assert not any(self.drained.get(name) for name in devices), "nothing new is placed there"
        assert len(set(devices)) == spec.gang and decision is not None
        assert {row.device for row in decision.rows if row.chosen} == set(devices)
        for row in (row for row in decision.rows if row.chosen):
            there = [each for each in self.home if self._present(each) and row.device in self.on(each)]
            assert sorted(there) == sorted(row.jobs) and row.refusal is None
            lonely = spec.exclusive or spec.gang > 1 or self.settings.placement == "exclusive"
            assert not there or not lonely, f"job {command.job} is not alone on {row.device}"
            assert not any(self.specs[number].gang > 1 or self.specs[number].exclusive for number in there)
            assert not self.settings.placement_strict or row.reluctance is None
            assert self.settings.max_jobs is None or len(there) < self.settings.max_jobs
            assert not self.settings.warm_window_us or len(row.warming) < self.settings.warm_limit
        believed = spec.estimate.memory if spec.estimate is not None else Memory()
        (need, *_) = (row.need for row in decision.rows if row.chosen)
        if need and need == believed.total and self.oversubscribe is Oversubscribe.OFF:
            self.promised_to[command.job] = (believed, self.now + self.settings.warm_timeout_us)

    def _signaljob(self, command: commands.SignalJob) -> None:
        (self.killed if command.signal == 9 else self.stopping).add(command.job)

    def _warnjob(self, command: commands.WarnJob) -> None:
        self.warned.add((command.job, len(self.past.get(command.job, ()))))

    def _warnofdevicetime(self, command: commands.WarnOfDeviceTime) -> None:
        self.warned_of_device_time.add((command.job, len(self.past.get(command.job, ()))))

    def _timeout(self, command: commands.TimeOut) -> None:
        assert self.specs[command.job].time_us or self.specs[command.job].device_time_us, "it has no limit"
        self.timed_out[command.job] = command.text

    def _retryjob(self, command: commands.RetryJob) -> None:
        number, exit_ = command.job, self.last_exit[command.job]
        requeued = self.requeued.get(number, set())
        wanted = command.attempt - 1 in requeued
        assert number not in self.ended and (wanted or number not in self.stopping), "started again after its end"
        assert (exit_.code, exit_.signal) == (command.code, command.signal) and (wanted or exit_.code != 0)
        self.stopping.discard(number)
        self.killed.discard(number)
        past = self.past[number] = (*self.past.get(number, ()), command.past)
        assert command.attempt == len(past) + 1
        assert command.past.out_of_memory == (exit_.out_of_memory is not None and not wanted)
        short = sum(attempt.out_of_memory for attempt in past)
        assert (
            short <= self.settings.max_recoveries and len(past) - short - len(requeued) <= self.specs[number].retries
        ), "too often"
        self.specs[number] = replace(self.specs[number], estimate=command.estimate)
        self.promised_to.pop(number, None)  # that was for the attempt that is over
        program = replace(self.programs[number], out_of_memory=max(0, self.programs[number].out_of_memory - len(past)))
        self.processes[number] = self._process(number, program)

    def _endjob(self, command: commands.EndJob) -> None:
        assert command.job not in self.ended, "ended twice"
        assert (command.outcome is Outcome.TIMED_OUT) <= (command.job in self.timed_out), "it has reached no limit"
        self.ended[command.job] = command
        process = self.processes[command.job]
        process.alive, process.attached, process.turn, process.limit = False, False, False, Memory()
        process.lane, process.kept = None, 0

    def _process(self, number: JobId, program: Program) -> Process:
        spec = self.specs[number]
        if spec.service is not None:
            kind = EngineProcess if spec.service.engine else ServiceProcess
            return kind(number, program, demands=self.demands[number])
        return (Suspended if spec.checkpoint else Process)(number, program)
