"""Further processes of a job on its CUDA device.  On the stub driver, without a core."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import AsyncIterator

import pytest

from carpool.core.events import Detached, TraitsSeen
from carpool.daemon.channels.connections import INHERITED
from carpool.daemon.channels.secondary import SecondaryProcess
from carpool.daemon.checkpoint.jobs import CheckpointJob, Stage
from carpool.daemon.jobs.constraints import why_exclusive
from carpool.protocol.api import SubmitRequest
from carpool.protocol.seat import OutOf, PacketType
from carpool.protocol.session import Register
from tests.daemon.cuda_rig import cuda_rig
from tests.daemon.cuda_rig_fixture import rig
from tests.daemon.rig import Client, OtherProcess, Rig
from tests.devices.cuda_stub import Stub

__all__ = ["rig"]

WHY = "several of its processes use the device"


class Second(OtherProcess):
    """A secondary process: the seat of the first one is in use."""

    def __init__(self, rig: Rig, client: Client) -> None:
        client.seat.set("p_peak", 1)
        super().__init__(rig, client)
        self.asks(uses=True)

    @property
    def known(self) -> SecondaryProcess:
        (process,) = self.rig.secondary._of[self.job.id]
        return process

    def wants(self) -> bool:
        """Whether it gets its turn."""
        self.known.seat.set("want", 1)
        self.says(PacketType.WANT)
        return bool(self.known.seat.get("turn"))


@pytest.fixture
async def second(rig: Rig, first: subprocess.Popen[bytes]) -> AsyncIterator[Second]:
    made = Second(rig, rig.attach(pid=first.pid))
    yield made
    made.close()


async def test_it_waits_for_the_turn_of_a_job_without_a_seat(second: Second) -> None:
    """A checkpoint job: on the device, or on its way."""
    other, checkpoint_jobs = second.rig.job(), second.rig.built.checkpoint_jobs
    other.spec = SubmitRequest(["true"], "/", {}, checkpoint=True)
    state = checkpoint_jobs.of[other.id] = CheckpointJob(Stage.ON)
    assert not second.wants()
    checkpoint_jobs.enter(state, Stage.LEAVING)
    assert not second.wants()
    checkpoint_jobs.enter(state, Stage.OFF)
    assert second.wants()


async def test_it_waits_while_another_job_has_the_device_to_itself(second: Second) -> None:
    second.rig.view = second.rig.view._replace(alone=99)
    assert not second.wants()
    second.rig.view = second.rig.view._replace(alone=second.job.id)
    assert second.wants()


async def test_what_the_turn_of_its_job_may_wait_for_does_not_wait(second: Second) -> None:
    second.rig.view = second.rig.view._replace(alone=99)
    assert second.job.lane is not None
    second.rig.seating.holder[second.job.lane] = second.job.id
    assert second.wants()


async def test_its_job_stays_alone_when_the_attached_process_is_gone(second: Second) -> None:
    assert second.wants()
    second.rig.events.clear()
    second.rig.channels.process_ended(second.job.id)
    told = [event for event in second.rig.events if isinstance(event, Detached | TraitsSeen)]
    assert told[0] == Detached(second.job.id, WHY)
    assert all(event.alone == WHY for event in told)


async def test_its_job_shares_the_device_again_when_the_last_one_is_gone(second: Second) -> None:
    assert second.wants()
    third = OtherProcess(second.rig, second.client, "channel:2")
    third.asks(uses=True)
    secondary = second.rig.secondary
    for alone in (WHY, None):
        second.rig.events.clear()
        secondary._gone(second.job, secondary._of[second.job.id][0])
        told = [event.alone for event in second.rig.events if isinstance(event, TraitsSeen)]
        assert told == ([None] if alone is None else [])
        assert why_exclusive(second.job.traits) == alone
    third.close()


async def test_a_main_process_that_is_secondary_says_why_it_ends(second: Second) -> None:
    job = second.job
    job.pid = os.getpid()
    second.known.seat.set("out_of_memory", OutOf.DEVICE)
    second.rig.channels.process_ended(job.id)
    assert job.seated is None and job.out_of == OutOf.DEVICE


async def test_its_word_stays_when_its_end_is_seen_first(second: Second) -> None:
    job = second.job
    assert job.seated is not None
    job.seated.seat.set("out_of_memory", OutOf.HEAP)
    job.pid = os.getpid()
    second.known.seat.set("out_of_memory", OutOf.OTHER)
    second.rig.secondary._gone(job, second.known)
    second.rig.channels.process_ended(job.id)
    assert job.out_of == OutOf.OTHER


async def test_who_is_to_ask_again_is_none_beside_carpool(rig: Rig, first: subprocess.Popen[bytes]) -> None:
    client = rig.attach(pid=first.pid)
    client.seat.set("p_peak", 1)
    other = OtherProcess(rig, client)
    other.asks()
    assert rig.secondary.ours(client.job) == {first.pid, os.getpid()}
    other.channel.close()
    rig.hears(client.job)
    assert rig.secondary.ours(client.job) == {first.pid}


async def test_after_a_restart_who_is_to_ask_again_is_none_beside_carpool(stub: Stub) -> None:
    """Nothing but its channel tells of it."""
    rig = cuda_rig()
    job = rig.job()
    rig.recovery.begin(set())
    ends = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    fds = [ours.detach() for ours, _ in ends]
    assert rig.channels.open(job, fds, Register(job.id, 1, child_pid=os.getppid(), kept=["channel:1"])) == ""
    rig.recovery.end()
    rig.channels.resume(job)
    assert rig.secondary.ours(job) == {os.getpid()}
    ends[1][1].close()
    rig.hears(job)
    assert rig.secondary.ours(job) == set()
    rig.close()
    ends[0][1].close()


async def test_after_a_restart_the_main_process_speaks_over_the_channel_that_it_has_inherited(
    second: Second, stub: Stub
) -> None:
    other, job = cuda_rig(), second.rig.job()
    other.jobs.live[job.id] = job
    other.recovery.begin(set())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    message = Register(job.id, 1, child_pid=os.getpid(), kept=[second.known.kept])
    assert other.channels.open(job, [ours.detach(), os.dup(second.known.board.held.fd)], message) == ""
    (found,) = other.secondary._of[job.id]
    assert (found.line, found.pid) == (INHERITED, os.getpid())
    other.close()
    theirs.close()


@pytest.mark.parametrize(
    "name",
    [
        *("companion:cuda0:0", "companion:cuda0:0:x", "companion:cuda7:0:{}", "companion:cuda0:64000:{}"),
        pytest.param("companion:cuda0:0:{}", id="a board that is none"),
    ],
)
async def test_what_no_shim_keeps_is_refused(rig: Rig, name: str) -> None:
    job, fd = rig.job(), os.memfd_create("no board")
    rig.recovery.begin(set())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kept = [name.format(os.getpid())]
    assert rig.channels.open(job, [ours.detach(), fd], Register(job.id, 1, child_pid=os.getpid(), kept=kept))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    theirs.close()
