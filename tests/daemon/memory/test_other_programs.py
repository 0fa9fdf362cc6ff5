"""Programs beside Carpool on one GPU: when they grow, jobs leave; when they go, jobs come back; nobody is ended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from carpool.core.model import MIB
from carpool.devices.cuda.agent_link import AgentLink
from carpool.devices.cuda.device import CudaDevice
from tests import libraries
from tests.cuda.rig import STUB_UUID
from tests.daemon.daemon_harness import Make
from tests.daemon.filled_jobs import FilledJobs
from tests.devices.cuda_stub import MEMORY, Stub
from tests.emulator.nvml.values import StubNvml, stubbed

SIZE = 120 * MIB
ON_GPU = 100 * MIB  # beside contexts of the daemon and the colleague, 43 MiB together


class Colleague:
    """A program that is none of Carpool's, and holds memory of the stub GPU; NVML says what the driver has given."""

    def __init__(self, stub: Stub, nvml: StubNvml) -> None:
        self._stub, self._nvml = stub, nvml
        self._link = AgentLink(0)
        self._device = CudaDevice("colleague", MEMORY, self._link)
        self._blocks: list[int] = []
        nvml.gpu(STUB_UUID, {"memory.total": MEMORY, "memory.reserved": 0, "gpm.supported": None})
        self.told()

    def grabs(self, size: int) -> None:
        """Raises DeviceError if the driver has no more."""
        self._blocks.append(size)
        self._device.open_lane(len(self._blocks), size)
        self.told()

    def until_room(self, size: int) -> None:
        """Free banks give pages back in a thread."""
        while MEMORY - self._stub.used() < size:
            self.told()

    def goes(self) -> None:
        self._device.close()
        self._blocks.clear()
        self.told()

    def told(self) -> None:
        """NVML answers anew."""
        process = f"1:{sum(self._blocks)}" if self._blocks else ""
        self._nvml.gpu(STUB_UUID, {"memory.used": self._stub.used(), "process.compute": process})


@pytest.fixture
def colleague(stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Colleague]:
    nvml = libraries.nvml()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml.parent), prepend=os.pathsep)
    with stubbed(nvml, tmp_path / "values") as values:
        made = Colleague(stub, values)
        yield made
        made.goes()


def wants_its_memory(jobs: FilledJobs, job: int) -> None:
    """And waits for it, with a reason that names the other programs."""
    daemon = jobs.daemon
    seen = daemon.events()[-1]["seq"]
    jobs.go_on(job)
    daemon.until_event(lambda event: event["kind"] == "TurnWanted" and event["job"] == job, since=seen)
    assert "kept for other programs" in daemon.show(job)["reason"]["text"]


def test_jobs_leave_when_others_grow_and_come_back_when_they_go(
    colleague: Colleague, make_daemon: Make, tmp_path: Path
) -> None:
    daemon = make_daemon("--device", "cuda", "--telemetry-interval=0.1s").started()
    jobs = FilledJobs(daemon, tmp_path, ON_GPU)
    job = jobs.filled(7)
    colleague.grabs(108 * MIB)  # what is left is less than what is measured in
    daemon.until("Offloaded", job)
    assert daemon.show(job)["stored_bytes"] == ON_GPU
    colleague.until_room(8 * MIB)  # which the driver has only because the job has left
    colleague.grabs(8 * MIB)
    wants_its_memory(jobs, job)
    colleague.goes()
    jobs.ended_intact(job)
    daemon.stop()


def test_a_reserve_is_kept_across_restarts_and_moves_jobs(make_daemon: Make, tmp_path: Path) -> None:
    daemon = make_daemon("--device", "host:200MiB").started()
    jobs = FilledJobs(daemon, tmp_path, SIZE)
    job = jobs.filled(7)
    assert daemon.put("/v1/devices/host0", {"reserve_bytes": 100 * MIB})["reserve_bytes"] == 100 * MIB
    daemon.until("Offloaded", job)
    daemon.restarted()
    assert (jobs.device()["reserve_bytes"], jobs.device()["free_bytes"]) == (100 * MIB, 100 * MIB)
    wants_its_memory(jobs, job)
    daemon.put("/v1/devices/host0", {"reserve_bytes": None})
    jobs.ended_intact(job)
