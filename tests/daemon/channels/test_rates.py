"""Jobs that say more than any job has to say: the daemon reads from their user more slowly, and from nobody else."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from carpool.core.events import TurnWanted
from carpool.daemon.config.limits import UserLimits
from carpool.daemon.journal.events import RING_KINDS
from carpool.daemon.system.allowance import BURST_S
from carpool.protocol.seat import PacketType
from tests.daemon.cuda_rig import until
from tests.daemon.daemon_harness import Daemon, Make
from tests.daemon.rig import Client, Rig

#: Less than a daemon reads on any machine, however busy that is.
RATE = 20


@pytest.fixture
def slow(make_daemon: Make) -> Daemon:
    """A daemon that reads little."""
    return make_daemon(limits=f"packets_per_s = {RATE}\n").started()


@pytest.fixture
def laconic(make_daemon: Make) -> Daemon:
    """A daemon that writes little."""
    return make_daemon(limits="log_lines_per_minute = 10\n").started()


def kinds(daemon: Daemon, job: int) -> list[str]:
    return [event["kind"] for event in daemon.events() if event["job"] == job]


def test_a_flood_of_requests_is_read_slowly_and_nothing_of_it_is_lost(slow: Daemon) -> None:
    count = int(RATE * (BURST_S + 2))
    job = slow.fake("attach", "small_channel", f"flood:{count}")
    info = slow.wait(job)
    assert info["outcome"] == "succeeded" and kinds(slow, job).count("MemoryRequested") == count
    assert info["ended_us"] - info["started_us"] > 500_000, "two seconds' worth, of which the channel holds a part"
    assert [line for line in slow.log().splitlines() if f"job {job} " in line] != []
    assert slow.log().count("packets_per_s") == 1


def test_all_that_a_job_can_cause_at_will_is_pruned_from_the_journal(daemon: Daemon) -> None:
    job = daemon.fake("attach", "flood:200", ended=True)
    often = {kind for kind in kinds(daemon, job) if kinds(daemon, job).count(kind) > 50}
    assert often and often <= RING_KINDS


def test_junk_leaves_few_lines_in_the_log(laconic: Daemon) -> None:
    job = laconic.fake("attach", "junk:1000")
    assert laconic.wait(job)["outcome"] == "succeeded"
    lines = [line for line in laconic.log().splitlines() if " INFO " not in line]
    assert len(lines) == 10 and all(f"job {job} sent" in line for line in lines)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(limits=UserLimits(packets_per_s=20))
    yield made
    made.close()


def wants(rig: Rig, client: Client) -> bool:
    """Whether the daemon reads a packet of the job at once."""
    return rig.says(client, PacketType.WANT) == [TurnWanted(client.job.id)]


def no_time_passes(rig: Rig, client: Client) -> None:
    """For what its user may say."""
    (line,) = rig.lines.all(client.job.id)
    tokens = line.allowance._tokens
    now = tokens._since
    tokens._clock = lambda: now


def flood(rig: Rig, client: Client) -> int:
    """How many packets the daemon reads."""
    return next((count for count in range(1000) if not wants(rig, client)), 1000)


async def test_jobs_of_other_users_are_read_as_before(rig: Rig) -> None:
    greedy, another = rig.attach(1000), rig.attach(1001)
    no_time_passes(rig, greedy)
    assert flood(rig, greedy) == 20 * BURST_S - 1, "all but its HELLO"
    assert wants(rig, another) and not wants(rig, greedy)


async def test_jobs_of_one_user_share_what_is_read(rig: Rig) -> None:
    greedy, sibling = rig.attach(1000), rig.attach(1000)
    no_time_passes(rig, greedy)
    flood(rig, greedy)
    assert not wants(rig, sibling)


async def test_a_channel_is_read_again_after_a_moment(rig: Rig, client: Client) -> None:
    flood(rig, client)
    rig.events.clear()
    await until(lambda: rig.events == [TurnWanted(client.job.id)])


async def test_a_channel_may_be_closed_meanwhile(rig: Rig, client: Client) -> None:
    flood(rig, client)
    (line,) = rig.lines.all(client.job.id)
    rest = line.rest
    rig.channels.release(client.job)
    assert rest is not None and rest.cancelled()
