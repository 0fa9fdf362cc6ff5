"""Telling shims which command to start."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from carpool.core.model import DeviceId
from carpool.daemon.hooks.base import JobStart
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.shims.sessions import Session
from carpool.devices.base import DeviceBackend
from carpool.protocol import session as messages
from carpool.protocol.environment import REQUEST_VARIABLE, parameter_variables
from carpool.protocol.paths import Home

#: The environment of a process into which no part of Carpool is loaded.
_PLAIN = {"CARPOOL_DISABLE": "1"}


@dataclass(frozen=True, slots=True)
class ShimSpawner:
    """The settings with which every job is started.

    ``threads``: number of threads for PyTorch, None: PyTorch's choice; ``environment``: variables for jobs on these
    devices, unless the jobs set them; ``log_limit``: bytes that are kept of the log of one attempt.
    """

    home: Home
    devices: Mapping[DeviceId, DeviceBackend]
    threads: int | None
    environment: Callable[[Sequence[DeviceId]], Mapping[str, str]]
    log_limit: int

    def spec(self, job: JobRecord, names: Sequence[DeviceId]) -> messages.StartSpec:
        """Return what a shim starts; the job sees only the GPUs among its devices, its own first."""
        gpus = ",".join(device.uuid for name in names if (device := self.devices[name]).uuid)
        env = {**self.environment(names), **job.spec.env} | {"CARPOOL_DEVICES": ",".join(names)} | _of_array(job)
        env |= {REQUEST_VARIABLE: job.spec.request} if job.spec.request else {}
        env = env | _PLAIN | {"CUDA_VISIBLE_DEVICES": gpus} if job.by_checkpoint else env
        output, error = job.own_files
        return messages.StartSpec(
            job.spec.argv,
            job.spec.cwd,
            env,
            self.threads,
            gpus,
            keeps_all=job.is_engine,
            log_limit=self.log_limit,
            output=output,
            error=error,
        )


def _of_array(job: JobRecord) -> dict[str, str]:
    """Return the variables that an element of an array, or of a grid, gets."""
    values = parameter_variables(job.spec.parameters)
    if job.spec.array is None:
        return values
    return values | {"CARPOOL_ARRAY_JOB": str(job.spec.array), "CARPOOL_ARRAY_INDEX": str(job.spec.index)}


def send_start(session: Session, start: JobStart) -> None:
    """Tell a shim to start its job.  The environment may exceed a packet, so it travels in a memfd."""
    fd = os.memfd_create(f"carpool-start-{start.job.id}", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(msgspec.json.encode(start.spec))
        session.send(messages.Start(), [fd])
    finally:
        os.close(fd)
