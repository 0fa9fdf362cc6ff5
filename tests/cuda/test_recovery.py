"""Jobs on GPUs that are refused memory: which of them come back, where, and what is left alone."""

from __future__ import annotations

import os
import socket

import pytest

from carpool.core.model import MIB
from carpool.protocol.api import JobInfo
from tests.cuda.rig import STUB_UUID, Bare, Daemon, Daemons, Program, Running
from tests.devices.cuda_stub import MEMORY, Stub
from tests.emulator.harness import Worker
from tests.emulator.nvml.values import StubNvml
from tests.tiers import all_but_first

TRAIN = "train --iterations 20 --seed 7"
UNPRELOADED = ["env", "-u", "LD_PRELOAD"]
#: As CARMA does: what is not free is refused at once.
REFUSING = ["--set=refuse_growth=1"]


def digest(bare: Bare, program: str) -> object:
    return bare.digest(Program.named(program))


def recovered(job: Running, bare: Bare, program: str, devices: list[str]) -> JobInfo:
    """It has run out of memory on all of these devices but the last, and there computed what it computes alone."""
    assert job.result()["digest"] == digest(bare, program)
    info = job.info()
    assert [attempt.device for attempt in info.attempts] == devices
    assert all(attempt.text.startswith("ran out of memory: ") for attempt in info.attempts[:-1]), info.attempts
    return info


def test_a_gated_job_comes_back_on_a_larger_device(two: Daemon, bare: Bare) -> None:
    """What it asked for would not fit on the first one even alone."""
    info = recovered(two.submit("spill 80"), bare, "spill 80", ["cuda0", "cuda1"])
    assert info.attempts[0].text.startswith("ran out of memory: it tried to allocate ")
    assert info.estimate_source == "recovery"


def test_what_no_device_holds_is_not_tried_again(small: Daemon) -> None:
    info = small.submit("spill 80").wait()
    assert (info.outcome, info.attempt) == ("failed", 1)
    assert info.reason is not None and info.reason.code == "out_of_memory"
    assert (
        "not started again: it asked for more than all of cuda0 (40 MiB), and may use no larger device"
        in info.reason.text
    )


def test_who_handles_it_or_only_speaks_of_it_is_left_alone(two: Daemon) -> None:
    handled, words = two.submit("spill 80 --handled"), two.submit("spill 80 --words")
    assert handled.result()["pieces"] >= 8
    assert handled.info().attempt == 1
    info = words.wait()
    assert (info.outcome, info.exit_code, info.attempt) == ("failed", 1, 1)


def test_an_exclusive_job_that_its_driver_refuses_comes_back_on_a_larger_device(two: Daemon, bare: Bare) -> None:
    """It has 64 MiB there."""
    recovered(two.submit("spill 80", exclusive=True), bare, "spill 80", ["cuda0", "cuda1"])


@pytest.mark.parametrize(
    ("checkpoint", "devices"), all_but_first([(False, ["cuda0", "cuda0", "cuda1"]), (True, ["cuda0", "cuda1"])])
)
def test_a_program_that_carpool_is_not_in_is_known_by_its_log(
    two: Daemon, bare: Bare, checkpoint: bool, devices: list[str]
) -> None:
    """In turns of a checkpoint job it has had all of its device the first time already."""
    program = "spill 80 --plain"
    before = [] if checkpoint else UNPRELOADED
    info = recovered(two.submit(program, before=before, checkpoint=checkpoint), bare, program, devices)
    assert info.attempts[0].text == "ran out of memory: CUDA_ERROR_OUT_OF_MEMORY: out of memory"


@pytest.mark.nightly(
    "with PyTorch what another test shows with scripted jobs",
    stays="tests/daemon/jobs/test_recovery.py::test_a_job_that_ran_out_of_memory_is_started_again_alone_and_once",
)
def test_where_growth_is_refused_the_one_that_grew_comes_back_when_the_other_has_ended(
    daemons: Daemons, bare: Bare
) -> None:
    """As CARMA places and recovers.  The neighbour is unharmed."""
    daemon = daemons("cuda:0:64MiB", options=REFUSING)
    neighbour = daemon.submit(
        f"{TRAIN} --weights 24 --meet 5", meet=True, persistent_bytes=26 * MIB, ephemeral_bytes=4 * MIB
    )
    there = daemon.meeting.arrive(1)
    grows = daemon.submit("spill 48")
    daemon.until(lambda: grows.info().attempt == 2)
    text = f"waiting for exclusive use of cuda0: job {neighbour.id} there"
    daemon.until(lambda: (reason := grows.info().reason) is not None and reason.text == text)
    daemon.meeting.go(there)
    assert neighbour.result()["digest"] == digest(bare, f"{TRAIN} --weights 24 --meet 5")
    recovered(grows, bare, "spill 48", ["cuda0"] * 2)


def taken(daemon: Daemon) -> int:
    """What the core has heard of memory of foreign processes last."""
    told = [event.data["size"] for event in daemon.client.events() if event.kind == "ForeignMemory"]
    return int(str(told[-1])) if told else 0


def spills_beside(daemon: Daemon, nvml: StubNvml, foreign: Worker) -> tuple[Running, list[socket.socket]]:
    """A job that has its device to itself, and a foreign process that takes most of the rest while it computes."""
    job = daemon.submit("spill 160 --meet 80", meet=True, exclusive=True)
    waiting = daemon.meeting.arrive(1)
    foreign.run(f"at = mapped(created({120 * MIB}), {120 * MIB})")
    told = {
        "memory.used": 200 * MIB,
        "process.compute": f"{job.info().pid}:{80 * MIB},{foreign.process.pid}:{120 * MIB}",
    }
    nvml.gpu(STUB_UUID, told)
    daemon.until(lambda: taken(daemon) == 96 * MIB)  # of 120, 32 lie beside the capacity; in steps of 16
    return job, waiting


def test_a_foreign_process_that_grows_is_waited_for(stub: Stub, daemons: Daemons, bare: Bare, nvml: StubNvml) -> None:
    """The job had all of its device to itself, but all of it was not there: so it may well fit later."""
    nvml.gpu(STUB_UUID, {"memory.total": MEMORY, "memory.used": 0, "memory.reserved": 0})
    daemon = daemons(options=["--telemetry-interval=0.2s"])
    with Worker(dict(os.environ)) as foreign:
        job, waiting = spills_beside(daemon, nvml, foreign)
        daemon.meeting.go(waiting)
        daemon.until(lambda: job.info().attempt == 2)
        nvml.gpu(STUB_UUID, {"memory.used": 120 * MIB, "process.compute": f"{foreign.process.pid}:{120 * MIB}"})
        daemon.until(lambda: (reason := job.info().reason) is not None and "other programs leave" in reason.text)
    nvml.gpu(STUB_UUID, {"memory.used": 0, "process.compute": ""})
    daemon.meeting.begin(1)
    recovered(job, bare, "spill 160 --meet 80", ["cuda0"] * 2)


def test_what_other_programs_have_is_known_before_jobs_are_placed(stub: Stub, daemons: Daemons, nvml: StubNvml) -> None:
    """Also by a daemon that has just started: the first job would get memory that is not there."""
    used = {"memory.used": 128 * MIB, "process.compute": f"{os.getpid()}:{128 * MIB}"}
    nvml.gpu(STUB_UUID, {"memory.total": MEMORY, "memory.reserved": 0, **used})
    events = list(daemons().client.events())
    told = next(event for event in events if event.kind == "ForeignMemory")
    assert told.seq < next(event.seq for event in events if event.kind == "RestartEnded")
    assert told.data["others"] == 96 * MIB, "the rest may lie beside the capacity"
