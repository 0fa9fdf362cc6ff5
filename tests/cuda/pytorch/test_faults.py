"""Jobs with PyTorch's CUDA build while neighbours die, holders are stopped and memory is short: contents stay right."""

from __future__ import annotations

import random
import re
import signal
import time
from contextlib import suppress

import pytest

from carpool.core.model import MIB
from tests.cuda.pytorch.rig import KNOWN, differing, in_turns, right, together
from tests.cuda.rig import Daemons
from tests.e2e.watching import causes
from tests.live import Running
from tests.tiers import RARER_WAY

STAYS = "tests/cuda/pytorch/test_training.py::test_contents_outlive_the_daemon_and_a_neighbour"
MOVES = "tests/cuda/pytorch/test_training.py::test_contents_of_memory_that_moves"
CAPACITY = 96 * MIB
#: Persistent memory of a job, and room for one of them and a lane.
LARGE, ONE = {"persistent_bytes": 72 * MIB, "ephemeral_bytes": 16 * MIB}, f"cuda:0:{CAPACITY // MIB}MiB"

#: What is known of a job that will need more.
SMALL = {"persistent_bytes": 8 * MIB, "ephemeral_bytes": 8 * MIB}


def whole(jobs: list[Running]) -> bool:
    return all(differing(job.result(), right("")) == [] for job in jobs)


@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_neighbours_are_killed_in_turns(daemons: Daemons) -> None:
    """Each is killed while it computes, or while it waits, as it happens."""
    daemon = daemons()
    jobs = together(daemon, [f"integrity {seed} 120 8 1" for seed in (1, 2)], **KNOWN)
    for seed in (3, 4, 5):
        victim = daemon.submit(f"integrity {seed} 100000 8", **KNOWN)
        daemon.until(lambda victim=victim: victim.info().iterations > 3)
        victim.signal(signal.SIGKILL)
        assert victim.wait().outcome == "failed"
    assert whole(jobs)


@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_jobs_are_stopped_at_random_moments(daemons: Daemons) -> None:
    daemon = daemons(ONE)
    jobs = together(daemon, [f"integrity {seed} 80 14" for seed in (1, 2)], **LARGE)
    moments, stops = random.Random(5), 0
    while running := [job for job in jobs if job.info().phase == "running"]:
        with suppress(ProcessLookupError):  # it has ended meanwhile
            victim = moments.choice(running)
            victim.signal(signal.SIGSTOP)
            time.sleep(moments.uniform(0.0, 0.4))  # the moment does not matter
            stops += 1
            victim.signal(signal.SIGCONT)
            time.sleep(moments.uniform(0.0, 0.2))
    assert stops >= 5
    assert whole(jobs)


@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_turns_are_taken_by_force_at_random_moments(daemons: Daemons) -> None:
    """Wherever the holder is when it has been asked for 2 ms, in the middle of an iteration."""
    daemon = daemons(options=["--set=forced_after_us=2ms"])
    in_turns(daemon, [f"integrity {seed} 60 8 1" for seed in (1, 2, 3)], right, **KNOWN)
    assert causes(daemon)["forced"] >= 10, causes(daemon)


@pytest.mark.nightly(RARER_WAY, stays=MOVES)
def test_four_times_as_much_as_there_is(daemons: Daemons) -> None:
    """And the daemon is killed meanwhile."""
    daemon = daemons(ONE)
    jobs = together(daemon, [f"integrity {seed} 40 20" for seed in range(1, 7)], **LARGE)
    daemon.until(lambda: sum(job.info().iterations for job in jobs) > 40)
    daemon.kill()
    daemon.start()
    assert whole(jobs)
    held = [job.info().persistent_bytes + job.info().ephemeral_bytes for job in jobs]
    assert sum(held) >= 4 * CAPACITY, held


@pytest.mark.nightly(RARER_WAY, stays=MOVES)
def test_memory_that_is_refused_for_good(daemons: Daemons) -> None:
    """Scripts catch the error and go on, beside another one."""
    scripts = ["exhausted 30", "exhausted 31"]
    daemon = daemons()
    jobs = together(daemon, scripts, **KNOWN)
    assert [job.result()["refused"] for job in jobs] == [6, 6]


@pytest.mark.nightly(RARER_WAY, stays=MOVES)
def test_what_runs_out_of_memory_beside_another_comes_back_by_itself(daemons: Daemons) -> None:
    """It is refused what the other one has, and started again when that one has gone."""
    daemon = daemons(ONE, options=["--set=refuse_growth=1"])
    first = daemon.submit("integrity 1 100000 16", **LARGE)
    daemon.until(lambda: first.info().iterations > 3)
    second = daemon.submit("growing 44", **SMALL)
    daemon.until(lambda: second.info().attempt == 2)
    assert first.info().phase == "running"
    first.signal(signal.SIGKILL)
    assert whole([second])
    why = second.info().attempts[0].text
    assert "ran out of memory: it tried to allocate 20.00 MiB; refused" in why
    held = re.search(r"other jobs hold (\d+) MiB", why)  # with a spare, which depends on the moment
    assert held is not None and 64 < int(held[1]) < 100, why


@pytest.mark.nightly(RARER_WAY, stays=MOVES)
@pytest.mark.parametrize(
    "configuration",
    ["max_split_size_mb:20,garbage_collection_threshold:0.6", "backend:cudaMallocAsync", "roundup_power2_divisions:4"],
)
def test_ways_of_pytorchs_allocator(daemons: Daemons, configuration: str) -> None:
    scripts = [f"integrity {seed} 50 8" for seed in (1, 2)]
    in_turns(daemons(), scripts, right, env={"PYTORCH_CUDA_ALLOC_CONF": configuration}, **KNOWN)
