"""Jobs for several GPUs: what they see, who else goes on, and what is left of them however they end."""

from __future__ import annotations

import json
import signal
import socket
import sys

import pytest

from carpool.core.model import MIB
from tests.cuda.rig import Bare, Daemon, Daemons, Program, Running, stub_uuid
from tests.devices.cuda_stub import MEMORY, Stub, context_of
from tests.tiers import all_but_first

THREE = ("cuda:0", "cuda:1", "cuda:2")
PIPELINE = "pipeline --iterations 20 --seed 3"
TRAIN = "train --iterations 20 --seed 7"
ORDINARY = "train --iterations 20 --seed 8"
SEVERAL = "several of its processes use the device"


def digest(bare: Bare, program: str) -> object:
    return bare.digest(Program.named(program))


def held_up(
    daemon: Daemon, program: str = f"{PIPELINE} --meet 5", gpus: int = 2, **request: object
) -> tuple[Running, list[socket.socket]]:
    """A gang that waits for the test in the middle of its work."""
    job = daemon.submit(program, meet=True, gpus=gpus, **request)
    return job, daemon.meeting.arrive(1)


def waits(daemon: Daemon, job: Running, code: str) -> str:
    """Until it does for that reason; what it says then."""
    daemon.until(lambda: (reason := job.info().reason) is not None and reason.code == code)
    reason = job.info().reason
    assert reason is not None
    return reason.text


def test_one_process_uses_all_its_devices_and_no_others(stub: Stub, daemons: Daemons, bare: Bare) -> None:
    stub.devices(MEMORY, MEMORY, MEMORY // 2)
    daemon = daemons(*THREE)
    job, waiting = held_up(daemon, device="cuda2,cuda1")
    assert {each.id: each.jobs for each in daemon.client.devices()} == {
        "cuda0": [],
        "cuda1": [job.id],
        "cuda2": [job.id],
    }
    beside = daemon.submit(ORDINARY)
    assert beside.result()["digest"] == digest(bare, ORDINARY), "other devices are nothing to it"
    assert beside.info().device == "cuda0"
    other = daemon.submit(TRAIN, device="cuda2")
    assert (
        waits(daemon, other, "exclusive") == f"job {job.id} has exclusive use of cuda2: it was submitted for 2 devices"
    )
    daemon.meeting.go(waiting)
    result = job.result()
    assert result["digest"] == digest(bare, PIPELINE)
    assert other.result()["digest"] == digest(bare, TRAIN)
    info = job.info()
    assert sorted(info.devices) == ["cuda1", "cuda2"] and info.iterations == 20
    assert result["devices"] == [stub_uuid(int(name[-1])) for name in info.devices]
    sizes = {"cuda1": MEMORY, "cuda2": MEMORY // 2}
    free = {name: size - 8 * MIB - context_of(size, modules=1) for name, size in sizes.items()}
    assert result["free"] == [free[name] for name in info.devices], "of each what its driver says"


def test_a_gang_waits_for_devices_of_its_own(two: Daemon, bare: Bare) -> None:
    before = two.submit(f"{TRAIN} --meet 2", meet=True)
    there = two.meeting.arrive(1)
    gang = two.submit(PIPELINE, gpus=2)
    assert waits(two, gang, "gang").startswith("waiting for exclusive use of 2 devices: 1 of 2 free")
    two.meeting.go(there)
    assert before.result()["digest"] == digest(bare, TRAIN)
    assert gang.result()["digest"] == digest(bare, PIPELINE)


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches", stays="test_torchrun_with_a_rank_for_each_device"
)
def test_a_launcher_that_shows_each_process_one_device(two: Daemon, bare: Bare) -> None:
    """By its number among the job's own, in CUDA_VISIBLE_DEVICES."""
    job = two.submit(TRAIN.replace("train", "ranks 2 --own"), gpus=2)
    result = job.result()
    assert result["digest"] == [digest(bare, TRAIN)] * 2
    assert result["device"] == [stub_uuid(int(name[-1])) for name in job.info().devices]
    assert result["sees"] == [[device] for device in result["device"]]
    assert all(counters["turns"] >= 1 for counters in result["counters"]), "both had seats"
    assert job.info().iterations == 20
    two.stub.wait_until_free()


def test_torchrun_with_a_rank_for_each_device(two: Daemon, bare: Bare, real_torch: dict[str, str]) -> None:
    """Its launcher imports PyTorch, closes descriptors, and starts the ranks with LOCAL_RANK."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "--no-python"]
    rank = 'p=$1 s=$2 out=$3; shift 3; TRAIN_DEVICE=$LOCAL_RANK exec "$p" "$s" "$out.$LOCAL_RANK" "$@"'
    before = [*torchrun, "/bin/sh", "-c", rank, "sh"]
    job = two.submit(f"{TRAIN} --meet 3", gpus=2, before=before, meet=True, env=real_torch)
    waiting = two.meeting.arrive(2)
    two.until(lambda: job.info().alone == SEVERAL)
    assert [each.alone for each in two.client.devices()] == [job.id] * 2
    two.meeting.go(waiting)
    assert job.wait().outcome == "succeeded", job.log()
    found = [json.loads(job.out.with_name(f"{job.out.name}.{rank}").read_text()) for rank in range(2)]
    assert [each["digest"] for each in found] == [digest(bare, TRAIN)] * 2
    own = [stub_uuid(int(name[-1])) for name in job.info().devices]
    assert [each["device"] for each in found] == own and [each["sees"] for each in found] == [own] * 2


def test_jobs_that_communicate_by_nccl_have_their_device_to_themselves(two: Daemon, bare: Bare) -> None:
    job, waiting = held_up(two, f"{PIPELINE} --collective --meet 5", 1, device="cuda0")
    two.until(lambda: job.info().alone == "its processes communicate by NCCL")
    other = two.submit(TRAIN, device="cuda0")
    text = f"job {job.id} has exclusive use of cuda0: its processes communicate by NCCL"
    assert waits(two, other, "exclusive") == text
    two.meeting.go(waiting)
    assert job.result()["digest"] == digest(bare, PIPELINE)
    assert other.result()["digest"] == digest(bare, TRAIN)


@pytest.mark.parametrize("way", all_but_first(["killed", "cancelled"]))
def test_a_gang_that_is_ended_leaves_all_its_devices(two: Daemon, bare: Bare, way: str) -> None:
    job, waiting = held_up(two)
    other = two.submit(TRAIN, device="cuda1" if way == "killed" else "cuda0")
    waits(two, other, "exclusive")
    assert two.stub.used() >= 16 * MIB
    if way == "cancelled":
        two.client.cancel(job.id)
    else:
        job.signal(signal.SIGKILL)
    info = job.wait()
    assert (info.outcome, info.signal) == (("cancelled", 15) if way == "cancelled" else ("failed", 9))
    assert other.result()["digest"] == digest(bare, TRAIN)
    for connection in waiting:
        connection.close()
    two.stub.wait_until_free()


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches", stays="test_a_gang_that_is_ended_leaves_all_its_devices"
)
def test_a_gang_of_which_one_process_dies_ends_as_its_launcher_does(two: Daemon, bare: Bare) -> None:
    job = two.submit("ranks 2 --victim --seed 7", gpus=2)
    other = two.submit(TRAIN, device="cuda1")
    info = job.wait()
    assert (info.outcome, info.exit_code) == ("failed", 1), job.log()
    assert other.result()["digest"] == digest(bare, TRAIN)
    two.stub.wait_until_free()


def test_a_gang_keeps_its_devices_over_a_restart_of_the_daemon(stub: Stub, daemons: Daemons, bare: Bare) -> None:
    stub.devices(MEMORY, MEMORY)
    daemon = daemons(*THREE[:2])
    job, waiting = held_up(daemon)
    other = daemon.submit(TRAIN, device="cuda1")
    waits(daemon, other, "exclusive")
    daemon.kill()
    daemon.start()
    assert "it was submitted for 2 devices" in waits(daemon, other, "exclusive")
    daemon.meeting.go(waiting)
    assert job.result()["digest"] == digest(bare, PIPELINE)
    assert other.result()["digest"] == digest(bare, TRAIN)


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches", stays="test_a_gang_waits_for_devices_of_its_own"
)
def test_what_a_gang_had_on_all_devices_is_no_reason_to_refuse_it_the_next_time(
    stub: Stub, daemons: Daemons, bare: Bare
) -> None:
    """Together it is more than one of them shares."""
    stub.devices(MEMORY, MEMORY)
    daemon = daemons("cuda:0:12MiB", "cuda:1:12MiB")
    first = daemon.submit(PIPELINE, gpus=2)
    assert first.result()["digest"] == digest(bare, PIPELINE)
    assert first.info().persistent_bytes == 16 * MIB
    again = daemon.submit(PIPELINE, gpus=2, again=first)
    assert again.result()["digest"] == digest(bare, PIPELINE)
    assert again.info().estimate_source == "history"
