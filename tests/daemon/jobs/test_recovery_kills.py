"""Recovery when the daemon is killed around it, or jobs are cancelled: nothing twice, nothing lost, nothing left."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.daemon.daemon_harness import Daemon, alive
from tests.daemon.failing import MESSAGE, WAITS, fails, let_go, pipe
from tests.tiers import all_but_first

__all__ = ["pipe"]

MIB = 1 << 20
SIZES = (32, 48, 64, 96, 128)
FIVE = tuple(word for size in SIZES for word in ("--device", f"host:{size}MiB"))
#: Leaves a process behind that hears no signal and has a session of its own, then ends for want of memory.
LEAVES = f"""
import os, signal, sys
with open(sys.argv[1], "a") as file:
    file.write("x")
reader, writer = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(writer, str(os.getpid()).encode())
        while True:
            signal.pause()
    os._exit(0)
print(int(os.read(reader, 20)))
os.wait()
sys.exit({MESSAGE!r})
"""


def recorded(daemon: Daemon, job: int) -> list[tuple[int, int, int | None]]:
    """Rows of the journal: number of an attempt, whether it was the last, what is reserved for the next."""
    query = "SELECT attempt, last, json_extract(estimate, '$.memory.persistent') FROM attempts WHERE job = ?"
    with closing(sqlite3.connect(daemon.home / "journal.sqlite")) as connection:
        return connection.execute(query + " ORDER BY attempt", (job,)).fetchall()


@pytest.mark.parametrize(
    "moments", all_but_first([["ProcessStarted", "ProcessExited"], ["RetryJob"] * 3, ["StartJob"] * 4])
)
def test_three_times_on_larger_devices_whenever_the_daemon_is_killed(
    make_daemon: Callable[..., Daemon], tmp_path: Path, moments: list[str]
) -> None:
    """The fifth device is larger still, and is not tried: three times are enough."""
    daemon = make_daemon(*FIVE, "--placement", "first-fit").started()
    job = fails(daemon, tmp_path / "starts", 99, MESSAGE, exclusive=True, persistent_bytes=10 * MIB)
    seen = 0
    for kind in moments:
        if daemon.show(job)["phase"] != "ended":  # then one of the two is still to come
            daemon.until_event(lambda event, kind=kind: event["kind"] in (kind, "EndJob"), seen)
        daemon.kill()
        seen = daemon.started().events()[-1]["seq"]
    info = daemon.wait(job)
    assert (info["outcome"], info["attempt"], (tmp_path / "starts").read_text()) == ("failed", 4, "xxxx")
    assert [attempt["device"] for attempt in info["attempts"]] == ["host0", "host1", "host2", "host3"]
    assert "it has been 3 times already (max_recoveries)" in info["reason"]["text"]
    assert all(f"attempt {number} on host{number - 1}: ran out" in info["reason"]["text"] for number in (1, 2, 3))
    for number in (1, 2, 3, 4):
        log = daemon.get(f"/v1/jobs/{job}/logs?attempt={number}").decode()
        assert log == f"start {number}\n{MESSAGE}\n"
    daemon.terminate()  # the end of a job is told first, and written soon after
    assert recorded(daemon, job) == [
        (1, 0, 15 * MIB),
        (2, 0, 15 * MIB * 3 // 2),
        (3, 0, 15 * MIB * 9 // 4),
        (4, 1, None),
    ], "half as much again each time"


def test_it_comes_before_all_that_wait(daemon: Daemon, tmp_path: Path, pipe: Path) -> None:
    neighbour = daemon.submit(sys.executable, "-u", "-c", WAITS, str(pipe), "0")
    daemon.until_line(neighbour, "here")
    earlier = [daemon.python("pass", exclusive=True) for _ in range(2)]
    job = fails(daemon, tmp_path / "starts", 1, MESSAGE)
    daemon.until("RetryJob", job)
    small = daemon.python("pass")
    assert daemon.show(small)["reason"]["text"] == f"host0 is kept for job {job}, which has waited too long"
    let_go(pipe)
    ends = {number: daemon.wait(number) for number in (job, *earlier, small)}
    again = next(event["seq"] for event in daemon.events() if event["kind"] == "RetryJob")
    order = [event["job"] for event in daemon.events(again) if event["kind"] == "StartJob"]
    assert order[0] == job and set(order) == set(ends)
    assert {info["outcome"] for info in ends.values()} == {"succeeded"}


def test_what_it_left_behind_is_gone_before_it_waits_and_cancelling_starts_nothing(
    daemon: Daemon, tmp_path: Path, pipe: Path
) -> None:
    neighbour = daemon.submit(sys.executable, "-u", "-c", WAITS, str(pipe), "0")
    daemon.until_line(neighbour, "here")
    job = daemon.submit(sys.executable, "-S", "-u", "-c", LEAVES, str(tmp_path / "starts"))
    daemon.until("RetryJob", job)
    orphan = int(daemon.output(job).split("\n")[0])
    assert not alive(orphan), "also that which has left its session, and is nobody's child"
    daemon.cancel(job)
    info = daemon.wait(job)
    assert (info["outcome"], info["reason"]["text"]) == ("cancelled", "cancelled before it started")
    let_go(pipe)
    assert daemon.wait(neighbour)["outcome"] == "succeeded"
    daemon.kill()
    daemon.started()
    assert daemon.show(job)["outcome"] == "cancelled" and (tmp_path / "starts").read_text() == "x"


def test_beside_logs_of_failed_jobs_nothing_is_started(daemon: Daemon, tmp_path: Path) -> None:
    """What is done is known from the journal; files are only looked at for jobs that have not ended."""
    jobs = [
        daemon.wait(fails(daemon, tmp_path / "out", 9, MESSAGE)),
        daemon.wait(daemon.python(f"raise SystemExit({MESSAGE!r})", retries=0)),
        daemon.wait(daemon.python("raise SystemExit('OOM')")),
    ]
    for _ in range(2):
        daemon.kill()
        seen = daemon.started().events()[-1]["seq"]  # a number from before may be used again
    over = {"pid": None, "lane": None}
    assert [daemon.show(info["id"]) for info in jobs] == [info | over for info in jobs]
    assert daemon.wait(daemon.python("pass"))["outcome"] == "succeeded"
    starts = [event["job"] for event in daemon.events(seen) if event["kind"] == "StartJob"]
    assert starts == [jobs[-1]["id"] + 1] and (tmp_path / "out").read_text() == "xx"


def test_directories_of_a_journal_that_is_gone_are_not_taken_for_those_of_new_jobs(
    make_daemon: Callable[..., Daemon], home: Path, tmp_path: Path, pipe: Path
) -> None:
    """A daemon whose journal is broken asks for it to be moved away; what old jobs left stays."""
    daemon = make_daemon().started()
    old = daemon.wait(fails(daemon, tmp_path / "starts", 9, MESSAGE))["id"]
    daemon.kill()
    for name in ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"):
        (home / name).unlink(missing_ok=True)
    daemon.started()
    holder = daemon.submit(sys.executable, "-u", "-c", WAITS, str(pipe), "0", exclusive=True)
    quiet = daemon.python("raise SystemExit(1)")
    daemon.until_line(holder, "here")
    daemon.kill()
    daemon.started()
    assert holder > old and daemon.show(holder)["phase"] == "running"
    let_go(pipe)
    assert daemon.wait(holder)["outcome"] == "succeeded"
    info = daemon.wait(quiet)
    assert (info["exit_code"], info["attempt"], daemon.output(quiet)) == (1, 1, "")
