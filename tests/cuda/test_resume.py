"""What a resume takes: as much as was measured, from whoever has it, and what follows if it fails."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from carpool.core.model import MIB
from tests.cuda.rig import STUB_UUID, Bare, Daemon, Daemons, Program, Running
from tests.devices.cuda_stub import Stub
from tests.emulator.harness import Worker, WorkerError
from tests.emulator.nvml.values import StubNvml

KNOWN = {"persistent_bytes": 8 * MIB, "ephemeral_bytes": 8 * MIB}
GUEST = "plain --iterations 10 --seed 7 --meet 5"
OTHER = "train --iterations 4 --seed 1"
MEASURED = 40 * MIB
TAKEN = 128 * MIB  # of 256, of which contexts take 50


def held_up(daemon: Daemon, env: dict[str, str] | None = None) -> tuple[Running, list[socket.socket]]:
    job = daemon.submit(GUEST, checkpoint=True, meet=True, env=env)
    return job, daemon.meeting.arrive(1)


def computes(job: Running, program: str, bare: Bare) -> bool:
    return bool(job.result()["digest"] == bare.digest(Program.named(program)))


def needed(daemon: Daemon, job: Running) -> int:
    """As it was written down when the job was suspended for the first time; never is less reserved for it."""
    return int(json.loads((daemon.home / f"suspended-{job.id}").read_text())["needed"])


def why(job: Running) -> str:
    """The job waits."""
    reason = job.info().reason
    return "" if reason is None else reason.text


def beside_it(daemon: Daemon, job: Running) -> Running:
    """Another one, which does not end: they take turns from now on, and the job has been suspended."""
    other = daemon.submit("train --iterations 1000000 --seed 9", **KNOWN)
    daemon.until_under_way(other)
    daemon.until(lambda: job.info().moved.out_bytes > 0)
    return other


@contextmanager
def taken(daemon: Daemon) -> Iterator[None]:
    """A foreign process has much of the GPU, as soon as nobody tries whether there is room for a resume."""
    with Worker(dict(os.environ)) as worker:

        def takes() -> bool:
            try:
                worker.run(f"at = mapped(created({TAKEN}), {TAKEN})")
            except WorkerError as error:
                assert "OUT_OF_MEMORY" in str(error)
                return False
            return True

        daemon.until(takes)
        yield


def test_one_that_cannot_be_restored_is_killed_and_the_others_go_on(daemon: Daemon, bare: Bare) -> None:
    job, waiting = held_up(daemon, {"EMULATOR_FAIL": "stub_restore=2"})
    other = daemon.submit(OTHER, **KNOWN)
    ended = job.wait()
    assert (ended.outcome, ended.signal) == ("failed", 9)
    assert ended.reason is not None and ended.reason.code == "checkpoint"
    assert "killed by Carpool: it could not be resumed: process" in ended.reason.text
    assert "CUDA_ERROR_OUT_OF_MEMORY" in ended.reason.text
    assert computes(other, OTHER, bare)
    assert not (daemon.home / f"suspended-{job.id}").exists()
    for connection in waiting:
        connection.close()
    daemon.stub.wait_until_free()


def test_a_resume_takes_what_was_measured(daemons: Daemons, bare: Bare, stub: Stub, nvml: StubNvml) -> None:
    """Somebody else has most of the GPU meanwhile: what the job could have had would not come."""
    daemon = daemons()
    job, waiting = held_up(daemon)
    nvml.gpu(STUB_UUID, {"process.compute": f"{job.info().pid}:{MEASURED}"})
    other = beside_it(daemon, job)
    assert job.info().persistent_bytes == MEASURED and needed(daemon, job) == MEASURED
    with taken(daemon):
        before = job.info().moved.in_bytes
        # One of two resumes has begun after that.
        daemon.until(lambda: job.info().moved.in_bytes >= before + 2 * MEASURED)
    daemon.meeting.go(waiting)
    assert computes(job, GUEST, bare)
    daemon.client.cancel(other.id)


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches", stays="test_a_resume_takes_what_was_measured"
)
def test_without_a_measurement_a_resume_takes_all_that_could_be_had(daemons: Daemons, bare: Bare, stub: Stub) -> None:
    daemon = daemons()
    job, waiting = held_up(daemon)
    other = beside_it(daemon, job)
    assert job.info().persistent_bytes > TAKEN and needed(daemon, job) > TAKEN
    with taken(daemon):
        daemon.until(lambda: "of which 192 MiB can be used" in why(job))  # the other has a context there
        daemon.client.cancel(other.id)
        daemon.until(lambda: "has not freed it" in why(job))
    daemon.meeting.go(waiting)
    assert computes(job, GUEST, bare)
