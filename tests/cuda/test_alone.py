"""Jobs that must have the GPU to themselves."""

from __future__ import annotations

from carpool.core.model import MIB
from carpool.daemon.jobs.constraints import EXCLUSIVE_BECAUSE
from carpool.protocol.seat import Trait
from tests.cuda.rig import Bare, Daemon, Daemons, Program, run_together
from tests.devices.cuda_stub import Stub

PROGRAM = "train --seed 7 --iterations 10"


def test_an_exclusive_job_has_the_drivers_own_memory(daemon: Daemon, bare: Bare) -> None:
    (job,) = run_together(daemon, bare, [PROGRAM], exclusive=True)
    assert job.info.iterations == 10
    assert job.info.persistent_bytes >= 4 * MIB and job.info.ephemeral_bytes >= 4 * MIB
    assert job.counters["residue_total"] == 0


def test_much_memory_of_the_drivers_own_keeps_the_others_waiting(daemons: Daemons, bare: Bare, stub: Stub) -> None:
    stub.devices(768 * MIB)
    daemon = daemons("cuda:0:128MiB")
    fixed = daemon.submit("fixed 257", meet=True)
    daemon.until_under_way(fixed)
    daemon.until(lambda: fixed.info().alone is not None)
    other = daemon.submit(PROGRAM)
    daemon.until(lambda: (reason := other.info().reason) is not None and reason.code == "exclusive")
    assert fixed.info().fixed_bytes >= 257 * MIB
    daemon.meeting.begin(1)
    assert fixed.result()["digest"] == bare.digest(Program.named("fixed 257"))
    assert other.result()["digest"] == bare.digest(Program.named(PROGRAM))


def test_work_of_another_interface_keeps_the_others_waiting(daemon: Daemon, bare: Bare) -> None:
    outside = daemon.submit("outside", meet=True)
    daemon.until_under_way(outside)
    daemon.until(lambda: outside.info().alone == EXCLUSIVE_BECAUSE[Trait.UNGATED])
    other = daemon.submit(PROGRAM)
    daemon.until(lambda: (reason := other.info().reason) is not None and reason.code == "exclusive")
    daemon.meeting.begin(1)
    assert outside.result()["digest"] == bare.digest(Program.named("outside"))
    assert other.result()["digest"] == bare.digest(Program.named(PROGRAM))
