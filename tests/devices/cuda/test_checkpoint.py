"""Checkpoints of processes, on the stub driver and with second processes.

The engine runs in a worker of its own: this process never loads a driver.
"""

from __future__ import annotations

import os
import signal

import pytest

from carpool.core.model import MIB
from tests.devices.conftest import Start
from tests.emulator.harness import Worker, WorkerError
from tests.tiers import all_but_first

HELD = 24 * MIB
CALLS = "cuCheckpointProcessLock,cuCheckpointProcessGetState"
FIRST = """
from carpool.devices.cuda.checkpoint import Checkpoint
begin()
"""


@pytest.fixture
def engine(start: Start) -> Worker:
    return start(FIRST)


@pytest.fixture
def job(start: Start) -> Worker:
    """A process with 24 MiB of the device: plain memory, mapped memory, and a context."""
    job = start(EMULATOR_CONTEXT="4MiB")
    job.run("plain = int(ok(driver.cuMemAlloc(12 << 20))); fill(plain, 11, 4)")
    job.run("at = mapped(created(8 << 20), 8 << 20); fill(at + (7 << 20), 22, 4)")
    return job


def _suspend(engine: Worker, job: Worker, arguments: str = "") -> None:
    engine.run(f"job = Checkpoint({job.process.pid}); job.suspend({arguments})")


def _state(engine: Worker, job: Worker) -> str:
    return str(engine.run(f"Checkpoint({job.process.pid}).state().name"))


def test_a_suspended_process_has_no_device_memory_and_gets_all_of_it_back(engine: Worker, job: Worker) -> None:
    assert engine.free() == 64 * MIB - HELD
    untouched = job.run("word(at)")
    _suspend(engine, job)
    assert (_state(engine, job), engine.free()) == ("CHECKPOINTED", 64 * MIB)
    engine.run(f"job.resume({HELD}, {HELD})")
    assert (_state(engine, job), engine.free()) == ("RUNNING", 64 * MIB - HELD)
    assert job.run("[word(plain + 12), word(at + (7 << 20)), word(at)]") == [11, 22, untouched]


def test_calls_of_a_suspended_process_wait_and_both_ways_are_idempotent(engine: Worker, job: Worker) -> None:
    _suspend(engine, job)
    engine.run("job.suspend()")
    assert _state(engine, job) == "CHECKPOINTED"
    job.send("word(plain)")
    assert job.silent()
    engine.run(f"job.resume({HELD}, lambda: {HELD}); job.resume(0, 0)")
    assert job.receive() == 11


def test_another_engine_goes_on_where_one_was_killed(engine: Worker, job: Worker, start: Start) -> None:
    pid = job.process.pid
    engine.run(f"ok(driver.cuCheckpointProcessLock({pid}, None))")
    engine.kill()
    second = start(FIRST)
    assert _state(second, job) == "LOCKED"
    _suspend(second, job)
    second.kill()
    start(FIRST).run(f"Checkpoint({pid}).resume({HELD}, {HELD})")
    assert job.run("word(plain)") == 11


def test_without_guaranteed_memory_nothing_is_restored(engine: Worker, job: Worker) -> None:
    _suspend(engine, job)
    for guaranteed in (f"{HELD - 1}", f"lambda: {HELD - 1}"):
        with pytest.raises(WorkerError, match=r"NotGuaranteed: .* would lose it"):
            engine.run(f"job.resume({HELD}, {guaranteed})")
    with pytest.raises(WorkerError, match=r"ValueError: .*are unknown"):
        engine.run(f"job.resume(0, {HELD})")
    assert _state(engine, job) == "CHECKPOINTED"
    engine.run(f"job.resume({HELD}, {HELD})")
    assert job.run("word(plain)") == 11


def test_a_broken_guarantee_loses_the_process_and_says_so(engine: Worker, job: Worker) -> None:
    _suspend(engine, job)
    engine.run("taken = ok(driver.cuMemAlloc(48 << 20))")
    with pytest.raises(WorkerError, match=r"Stuck: .* can only be killed: .*OUT_OF_MEMORY"):
        engine.run(f"job.resume({HELD}, {HELD})")
    engine.run("ok(driver.cuMemFree(taken))")
    assert (_state(engine, job), engine.free()) == ("FAILED", 64 * MIB)
    for again in ("job.suspend()", f"job.resume({HELD}, {HELD})"):
        with pytest.raises(WorkerError, match=r"Stuck: .* earlier"):
            engine.run(again)


def test_a_process_in_the_middle_of_a_call_goes_on(engine: Worker, job: Worker) -> None:
    """Its call waits for a word that is written only after the lock has been given up."""
    job.run("word_at = int(ok(driver.cuMemHostAlloc(4096, 0))); value = ctypes.c_uint32.from_address(word_at)")
    job.run("stream = ok(driver.cuStreamCreate(1)); ok(driver.cuStreamWaitValue32(stream, word_at, 1, 0))")
    job.run(
        "import threading; done = threading.Thread(target=driver.cuStreamSynchronize, args=(stream,)); done.start()"
    )
    job.run("while not ctypes.CDLL('libcuda.so.1').stub_calls(b'cuStreamSynchronize'): pass")
    with pytest.raises(WorkerError, match=r"Busy: .* after 100 ms"):
        _suspend(engine, job, "timeout_ms=100")
    assert _state(engine, job) == "RUNNING"
    job.run("value.value = 1; done.join()")
    _suspend(engine, job)
    assert _state(engine, job) == "CHECKPOINTED"


@pytest.mark.parametrize(
    "shared", all_but_first(["driver.cuMemAllocManaged(4096, 1)", "driver.cuIpcGetMemHandle(plain)"])
)
def test_memory_that_cannot_move_leaves_the_process_running(engine: Worker, job: Worker, shared: str) -> None:
    job.run(f"ok({shared}) and None")
    with pytest.raises(WorkerError, match=r"Unsupported: .* cannot be taken off"):
        _suspend(engine, job)
    assert _state(engine, job) == "RUNNING"
    assert job.run("word(plain)") == 11


@pytest.mark.parametrize(("code", "why"), [(2, "no memory for its copy, or .* MIG"), (801, "managed memory")])
def test_a_device_whose_driver_suspends_nothing_is_told_apart_from_one_that_is_busy(
    engine: Worker, start: Start, code: int, why: str
) -> None:
    job = start(EMULATOR_FAIL=f"stub_checkpoint={code}")
    with pytest.raises(WorkerError, match=f"Unsupported: .*{why}"):
        _suspend(engine, job)
    assert _state(engine, job) == "RUNNING"


def test_imported_memory_cannot_move_either(engine: Worker, job: Worker) -> None:
    engine.run("share(exported(created(2 << 20)))")
    job.run("imported(fds[0]) and None", fds=[engine.fds[-1]])
    with pytest.raises(WorkerError, match="Unsupported"):
        _suspend(engine, job)
    assert _state(engine, job) == "RUNNING"


def test_processes_without_cuda_and_dead_ones_are_told_apart_from_others(engine: Worker, job: Worker) -> None:
    with pytest.raises(WorkerError, match=f"NoSuchProcess: process {os.getpid()} "):
        engine.run(f"Checkpoint({os.getpid()}).suspend()")
    job.process.send_signal(signal.SIGKILL)
    job.process.wait()
    with pytest.raises(WorkerError, match="NoSuchProcess"):
        _suspend(engine, job)


@pytest.mark.parametrize("older", [{"EMULATOR_HIDE": CALLS}, {"EMULATOR_CUDA": "12080"}], ids=["565", "570"])
def test_an_older_driver_is_refused(start: Start, older: dict[str, str]) -> None:
    engine = start("from carpool.devices.cuda.checkpoint import Checkpoint", **older)
    with pytest.raises(WorkerError, match=r"Unsupported: .* version 575 or later is needed"):
        engine.run("Checkpoint(1)")
