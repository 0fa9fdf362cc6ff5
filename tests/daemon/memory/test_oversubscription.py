"""Jobs that need more memory together than the device has: fake jobs that move real bytes when they are asked to."""

from __future__ import annotations

import errno
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from carpool.daemon.system.processes import state_of
from tests.daemon.daemon_harness import FAKEJOB, PATIENCE_S, Daemon, Make, until
from tests.daemon.filled_jobs import FilledJobs
from tests.tiers import RARER_WAY, all_but_first

MIB = 1 << 20
SIZE = 10 * MIB
#: Who has moved its memory in keeps its turn no longer than others.
DEVICE = ("--device", "host:16MiB", "--set", "max_move_share_ppm=100%")


@pytest.fixture
def pair(make_daemon: Make, tmp_path: Path) -> FilledJobs:
    """Jobs of `SIZE` bytes each, of which the device has room for one."""
    return FilledJobs(make_daemon(*DEVICE).hurry("sigstop.watchdog.TAKE_AFTER_S", to=0.2).started(), tmp_path, SIZE)


def state(pid: int) -> str:
    return state_of(pid, os.getuid())


def moving(pair: FilledJobs, how: str) -> tuple[int, int]:
    """A job in the middle of its move, and the one that it makes room for."""
    first, second = pair.filled(1, how), pair.start(2)
    pair.daemon.until("Offload", first)
    return first, second


def test_three_jobs_take_turns_again_and_again(pair: FilledJobs) -> None:
    rounds = ("release", f"check:{SIZE}:{{0}}") * 3
    jobs = [pair.filled(value, after=tuple(step.format(value) for step in rounds)) for value in (1, 2, 3)]
    for job in jobs:
        pair.go_on(job)
    for job in jobs:
        assert pair.daemon.wait(job)["outcome"] == "succeeded", (pair.daemon.output(job), pair.daemon.log())
        assert pair.daemon.output(job).count("intact") == 4 and "damaged" not in pair.daemon.output(job)
    pair.nothing_left()


def test_an_offload_that_fails_changes_nothing(pair: FilledJobs) -> None:
    first = pair.filled(1, f"fail:{errno.ENOMEM}")
    second = pair.start(2)
    failed = pair.daemon.until("OffloadFailed", first)
    assert "Cannot allocate memory" in failed["data"]["text"]
    assert not pair.daemon.show(first)["offloaded"]
    pair.intact(first)
    pair.daemon.until_line(second, "filled")
    pair.intact(second)


def test_a_job_killed_while_it_moves(pair: FilledJobs) -> None:
    first, second = moving(pair, "slowly:0.5")
    os.kill(pair.daemon.show(first)["pid"], signal.SIGKILL)
    assert pair.daemon.wait(first)["signal"] == signal.SIGKILL
    pair.daemon.until_line(second, "filled")
    assert pair.device()["stored_bytes"] == 0
    pair.intact(second)
    pair.nothing_left()


def test_the_daemon_is_killed_while_a_job_moves(pair: FilledJobs) -> None:
    first, second = moving(pair, "slowly:0.05")
    pair.daemon.restarted()
    pair.daemon.until_line(second, "filled")
    pair.intact(first, second)
    pair.nothing_left()


def test_an_idle_holder_loses_its_turn(pair: FilledJobs) -> None:
    pair.daemon.put("/v1/policy", {"settings": {"quantum_us": 30_000_000}})
    idle = pair.daemon.fake("attach", "help", "turn", "iterate:5", "turn", "sleep_idle", line="idle")
    other = pair.daemon.fake("attach", "help", "iterate:3")
    assert pair.daemon.wait(other)["outcome"] == "succeeded"
    ended = pair.daemon.until_event(
        lambda event: event["kind"] in ("TurnReleased", "TurnPassed") and event["job"] == idle
    )
    assert ended["data"]["cause"] == "early"
    pair.daemon.until("WatchIdle", idle)


# Stopped processes


def test_a_stopped_job_without_a_turn_is_taken_by_its_shim(pair: FilledJobs) -> None:
    first = pair.filled(1)
    pid = pair.daemon.show(first)["pid"]
    os.kill(pid, signal.SIGSTOP)
    second = pair.filled(2)
    assert state(pid) == "T"
    shown = pair.daemon.show(first)
    assert shown["offloaded"] and shown["stored_bytes"] == SIZE
    os.kill(pid, signal.SIGCONT)
    pair.intact(first, second)
    answers = [event for event in pair.daemon.events() if event["kind"] == "Offloaded" and event["job"] == first]
    assert len(answers) == 1
    pair.nothing_left()


def test_a_job_stopped_while_it_moves_runs_until_it_has_moved(pair: FilledJobs) -> None:
    first, second = moving(pair, "slowly:0.05")
    pid = pair.daemon.show(first)["pid"]
    until(lambda: pair.device()["stored_bytes"] > 0)
    os.kill(pid, signal.SIGSTOP)
    pair.daemon.until_line(second, "filled")
    until(lambda: state(pid) == "T")
    assert pair.daemon.show(first)["offloaded"]
    os.kill(pid, signal.SIGCONT)
    pair.intact(first, second)


def test_a_stopped_holder_that_has_memory_too(pair: FilledJobs) -> None:
    """It comes to no boundary: what others wait for is not the time that a boundary is waited for."""
    pair.daemon.put("/v1/policy", {"settings": {"forced_after_us": 600_000_000}})
    first = pair.filled(1, after=("say:mine", "pause"))
    pair.go_on(first)
    pair.daemon.until_line(first, "mine")
    pid = pair.daemon.show(first)["pid"]
    os.kill(pid, signal.SIGSTOP)
    second = pair.filled(2)
    until(lambda: state(pid) == "T")
    assert pair.daemon.show(first)["offloaded"]
    pair.intact(second)


@pytest.mark.nightly(RARER_WAY, stays="test_a_stopped_job_without_a_turn_is_taken_by_its_shim")
def test_stopped_again_though_the_daemon_died_in_between(pair: FilledJobs) -> None:
    job = pair.filled(1)
    pid = pair.daemon.show(job)["pid"]
    pair.daemon.kill()
    (pair.daemon.home / f"continued-{job}").touch()
    pair.daemon.started()
    until(lambda: state(pid) == "T")
    os.kill(pid, signal.SIGCONT)
    pair.intact(job)


def test_one_process_after_another(pair: FilledJobs) -> None:
    """What the first one held is free."""
    command = f"{sys.executable} -u {FAKEJOB}"
    fill = f"turn grow:p:{SIZE} touch:p:{SIZE}:7 release"
    job = pair.daemon.submit(
        "sh", "-c", f"{command} attach {fill}; {command} attach help {fill} check:{SIZE}:7 release"
    )
    assert pair.daemon.wait(job)["outcome"] == "succeeded", pair.daemon.output(job)
    pair.nothing_left()


@pytest.mark.parametrize("kills", all_but_first([2, 25], "kills at random points while memory moves: minutes"))
def test_killed_and_stopped_at_random_points_while_memory_moves(
    pair: FilledJobs, moments: random.Random, kills: int
) -> None:
    daemon = pair.daemon
    daemon.put("/v1/policy", {"settings": {"forced_after_us": 100_000, "quantum_us": 0}})
    jobs = [pair.filled(value, after=("release", f"check:{SIZE}:{value}") * 1000) for value in (1, 2, 3)]
    pids = [daemon.show(job)["pid"] for job in jobs]
    for job in jobs:
        pair.go_on(job)
    for _ in range(kills):
        # Not a synchronisation: the point of this test is that the moment does not matter.
        time.sleep(moments.uniform(0.0, 0.3))
        stopped = moments.choice(pids)
        os.kill(stopped, signal.SIGSTOP)
        time.sleep(moments.uniform(0.0, 0.3))
        daemon.restarted()
        time.sleep(moments.uniform(0.0, 0.3))
        os.kill(stopped, signal.SIGCONT)
    for job, pid in zip(jobs, pids, strict=True):
        goes_on(daemon, job, pid)
    for job in jobs:
        daemon.cancelled(job)
        assert "restored" in daemon.output(job) and "damaged" not in daemon.output(job), daemon.output(job)
    pair.nothing_left()


def goes_on(daemon: Daemon, job: int, pid: int) -> None:
    """Wait until it has looked at its memory once more.

    If we continued it while the daemon let it run, it has been stopped again: nobody can see a second SIGCONT.
    """
    seen = len(daemon.output(job).splitlines())

    def looked() -> bool:
        os.kill(pid, signal.SIGCONT)
        return "intact" in daemon.output(job).splitlines()[seen:]

    until(looked, 4 * PATIENCE_S)  # a move of each job may be under way that counts as failed after 11 s only
