"""Checkpoint jobs: a whole process is taken off the device by the driver, and put back."""

from __future__ import annotations

from carpool.devices.cuda.checkpoint import Checkpoint, CheckpointState, supported
from tools.gpu_check.checks.jobs import COPIES, moves, same, wait_for_iterations
from tools.gpu_check.daemon import daemon
from tools.gpu_check.registry import Figures, Skip, check, require
from tools.gpu_check.worker import workers

MIB = 1 << 20
SIZE = 64 * MIB
VALUE = 0x5A5A1234


def needs_checkpoint() -> None:
    """Raises Skip where the driver cannot suspend processes."""
    if not supported():
        raise Skip("this driver cannot suspend PyTorch: version 575 or later can")


@check("checkpoint jobs: a process is suspended, its memory is free, and it finds everything when it is resumed")
def checkpoint_round_trip() -> Figures:
    needs_checkpoint()
    with workers(2) as (watcher, job):
        empty, _ = watcher.ask("free")
        address, _ = job.ask("keep", size=SIZE, value=VALUE)
        held = empty - watcher.ask("free")[0]
        require(held >= SIZE, f"it holds only {held} bytes")
        process = Checkpoint(job.process.pid)
        process.suspend()
        require(process.state() is CheckpointState.CHECKPOINTED, f"it is {process.state().name}")
        freed = watcher.ask("free")[0] - (empty - held)
        require(freed >= SIZE, f"only {freed} bytes have come back")
        process.resume(needed=held, guaranteed=watcher.ask("free")[0])
        require(process.state() is CheckpointState.RUNNING, f"it is {process.state().name}")
        words, _ = job.ask("words", address=address, size=SIZE)
        require(words == [VALUE] * 3, f"its memory has changed: {words}")
        return {"MiB that came back": freed / MIB}


@check("a job that the driver suspends between its turns (--checkpoint) computes what it computes alone")
def checkpoint_job() -> Figures:
    needs_checkpoint()
    with daemon("384MiB") as shared:
        expected = shared.output(shared.submit(COPIES, "1", "5000"))
        other = shared.submit(COPIES, "1", "1000000000")
        wait_for_iterations(shared, other)
        guest = shared.submit(COPIES, "1", "5000", checkpoint=True)
        same(expected, [shared.output(guest)])
        shared.kill_job(other)
        require(shared.end(other).signal == 9, "the other job did not go on")
        require(shared.client.job(guest).switches > 1, "it was never suspended")
        return moves(shared, [guest])
