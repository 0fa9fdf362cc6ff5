"""The machine's memory and what jobs have of it, as the core is told; and real jobs that wait for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from carpool.core.events import HostMeasured
from carpool.daemon.cgroups.hierarchies import MemoryLeft
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.telemetry.host_memory import FREE_STEP, JOB_STEP, HostMemory
from carpool.protocol.api import SubmitRequest
from tests.daemon.daemon_harness import Make, until

GIB = 1 << 30
MIB = 1 << 20
#: Says that it is there, takes so many MiB when it is told to, and stays.
TAKES = "import sys; print('here', flush=True); sys.stdin.read(1); x = b'1' * (%d << 20); print('has', flush=True)"


class Measured:
    """A measurement of jobs that are processes of this test's."""

    def __init__(self, left: MemoryLeft, *pids: int) -> None:
        self.jobs, self.told, self.left = JobTable(), list[HostMeasured](), left
        for number, pid in enumerate(pids, 1):
            job = JobRecord(number, os.getuid(), os.getgid(), SubmitRequest(["x"], "/", {}), None, 0, pid=pid)
            self.jobs.live[number] = job
        self.memory = HostMemory(self.jobs, {}, self.told.append, lambda: self.left, cores=3)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", TAKES % 40 + "; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        yield process
        process.stdin.close()


async def test_what_is_left_beyond_a_reserve() -> None:
    made = Measured(MemoryLeft(32 * GIB, 20 * GIB))
    await made.memory.look()
    await made.memory.look()
    assert made.told == [HostMeasured(18 * GIB, 3, {})], "nothing has changed since"
    made.left = MemoryLeft(512 * GIB, 20 * GIB + FREE_STEP - 1)
    await made.memory.look()
    made.left = MemoryLeft(32 * GIB, GIB)
    await made.memory.look()
    assert [event.free for event in made.told[1:]] == [12 * GIB, -GIB], "no more than 8 GiB are kept"


async def test_what_jobs_have_and_which_do_nothing(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None and child.stdout is not None
    made = Measured(MemoryLeft(32 * GIB, 20 * GIB), child.pid)
    assert child.stdout.readline() == b"here\n"
    await made.memory.look()
    (before,) = made.told
    assert 0 < before.jobs[1] <= 64 * MIB and before.jobs[1] % JOB_STEP == 0 and before.idle == ()
    while not made.told[-1].idle:  # it may have been on its way into `read`
        await made.memory.look()
    assert made.told[-1].idle == (1,)
    child.stdin.write(b"x")
    child.stdin.flush()
    assert child.stdout.readline() == b"has\n"
    await made.memory.look()
    assert made.told[-1].jobs[1] >= before.jobs[1] + 40 * MIB - JOB_STEP
    assert made.jobs.live[1].scratch_bytes >= 40 * MIB


async def test_what_cannot_be_measured_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    made = Measured(MemoryLeft(1, 1))

    def broken() -> Any:
        raise OSError("no /proc")

    made.memory = HostMemory(made.jobs, {}, made.told.append, broken)
    await made.memory.look()
    assert made.told == [] and "cannot measure the machine's memory: no /proc" in caplog.text


# A daemon


def test_no_job_starts_that_the_machine_has_no_memory_for(make_daemon: Make) -> None:
    """All but a little of the machine is kept: there is room for two that have said nothing yet."""
    daemon = make_daemon("--device", "host:64MiB").hurry("telemetry.host_memory.LARGEST_RESERVE", to=1 << 60)
    daemon.hurry("telemetry.host_memory.RESERVE_PART", to=1).started()
    first = daemon.python("import signal; print('here', flush=True); signal.pause()", line="here")
    later = daemon.python("pass")
    reason = daemon.show(later)["reason"]
    assert reason["code"] == "host_memory" and "the machine has 0 B of its own memory left" in reason["text"]
    daemon.post(f"/v1/jobs/{first}/cancel", {})
    assert daemon.wait(later)["outcome"] == "succeeded"


def test_jobs_that_do_nothing_do_not_throttle_each_other(make_daemon: Make) -> None:
    """Two at a time, and two more only when these have used their device, which they never do."""
    daemon = make_daemon("--device", "host:64MiB", "--set", "warm_limit=2", "--set", "warm_timeout_us=10m").started()
    jobs = [daemon.submit("sleep", "600") for _ in range(8)]
    until(lambda: all(daemon.show(job)["phase"] == "running" for job in jobs))
