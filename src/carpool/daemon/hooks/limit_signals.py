"""Signals before time limits (`carpool submit --signal`): each attempt gets one for each of its limits."""

from __future__ import annotations

import dataclasses
from functools import partial

import msgspec

from carpool.core.commands import WarnJob, WarnOfDeviceTime
from carpool.core.events import Adopted
from carpool.core.lifecycle.submissions import LARGEST_SIGNAL
from carpool.daemon.hooks.base import Commands, JobHook, Refusal, Signals
from carpool.daemon.jobs.control import LimitWarning
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.protocol.api import SubmitRequest


class LimitSignals(JobHook):
    """Sends the signals when the core says so; records first that they are sent, so that they come once."""

    def __init__(self, jobs: JobTable) -> None:
        self._jobs = jobs

    def submit(self, spec: SubmitRequest) -> Refusal | None:
        """Refuse signals that do not exist."""
        if spec.limit_signal <= LARGEST_SIGNAL:
            return None
        text = f"limit_signal is {spec.limit_signal}; signals have numbers from 1 to {LARGEST_SIGNAL}"
        return Refusal("bad_limit_signal", text, "0: none")

    def adopted(self, job: JobRecord, event: Adopted) -> Adopted:
        """Say which signals the attempt has got from an earlier daemon; a changed limit has a new one."""
        warned, of_device_time = job.control.warned, job.control.warned_of_device_time
        return dataclasses.replace(
            event, warned=warned == _time(job), warned_of_device_time=of_device_time == _device_time(job)
        )

    def commands(self, signals: Signals) -> Commands:
        """Return the two commands: each limit has its own."""
        return {
            WarnJob: partial(self._warn, signals),
            WarnOfDeviceTime: partial(self._warn_of_device_time, signals),
        }

    def _warn(self, signals: Signals, command: WarnJob) -> None:
        job = self._jobs.live[command.job]
        job.control = msgspec.structs.replace(job.control, warned=_time(job))
        signals.record(job)
        signals.send(job, command.signal)

    def _warn_of_device_time(self, signals: Signals, command: WarnOfDeviceTime) -> None:
        job = self._jobs.live[command.job]
        job.control = msgspec.structs.replace(job.control, warned_of_device_time=_device_time(job))
        signals.record(job)
        signals.send(job, command.signal)


def _time(job: JobRecord) -> LimitWarning:
    return job.spec.time_us, job.spec.limit_signal, job.spec.limit_signal_us


def _device_time(job: JobRecord) -> LimitWarning:
    return job.spec.device_time_us, job.spec.limit_signal, job.spec.limit_signal_us
