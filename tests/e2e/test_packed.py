"""Jobs that need nearly all of their device: what was granted and holds no tensor is used before any is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.watching import MIB, counted, nothing_left

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon, Daemons, Running
    from tests.live import Workload

#: For 6.8 MiB of tensors, and 1.7 of a model and its data; the former reach over twice as many addresses.
CAPACITY = "host:10MiB"


def was_packed(daemon: Daemon, job: Running) -> bool:
    asked = [event.data for event in daemon.client.events() if event.kind == "MemoryRequested" and event.job == job.id]
    return any(data.get("packs") for data in asked)


def test_a_lone_job_has_the_use_of_all_that_it_was_granted(
    bare: Bare, daemons: Daemons, workload: type[Workload]
) -> None:
    daemon, scattered = daemons(CAPACITY, max_recoveries=0), workload("scattered")
    job = daemon.submit(scattered)
    assert [job.result()] == bare([scattered])
    assert was_packed(daemon, job)
    nothing_left(daemon)


def test_two_such_jobs_take_turns_with_the_device(bare: Bare, daemons: Daemons, workload: type[Workload]) -> None:
    scattered = workload("scattered")
    daemon = daemons(CAPACITY, max_recoveries=0, max_move_share_ppm=1_000_000)
    jobs = [daemon.submit(scattered, meet=True) for _ in range(2)]
    daemon.meeting.begin(2, together=True)
    assert [job.result() for job in jobs] == 2 * bare([scattered])
    assert all(was_packed(daemon, job) for job in jobs)
    nothing_left(daemon)
    assert sum(counted(daemon, "Offloaded").values()) >= 2


def test_a_refusal_says_what_there_is_and_what_to_do(daemons: Daemons, workload: type[Workload]) -> None:
    daemon = daemons(CAPACITY, max_recoveries=0)
    job = daemon.submit(workload("scattered", ("9",)))
    info = job.wait()
    assert info.outcome == "failed" and info.reason is not None and info.reason.code == "out_of_memory"
    line = next(line for line in job.log().splitlines() if line.startswith("carpool: device memory was refused"))
    assert "asked for 9.0 MiB; granted " in line and "the device has 10.0 MiB, of which other jobs hold 0.0 MiB" in line
    assert "refused: the job would need " in info.reason.text and "are alive; other jobs hold 0 B" in info.reason.text
    assert "use smaller batches, or a larger device" in info.reason.text
    assert MIB < alive_in(line) < 9 * MIB


def alive_in(line: str) -> float:
    """Bytes."""
    return float(line.partition("of which ")[2].split()[0]) * MIB
