"""Recovery when the daemon is killed around it, or jobs are cancelled: nothing twice, nothing lost, nothing left."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from carpool.daemon.system.clock import boot_id
from carpool.protocol.packets import readable
from carpool.protocol.paths import Home
from tests.daemon.daemon_harness import Daemon, Make, alive, parent_of
from tests.daemon.failing import MESSAGE, WAITS, fails, let_go
from tests.daemon.journal_file import sql
from tests.tiers import all_but_first

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
    return sql(daemon.home / "journal.sqlite", query + " ORDER BY attempt", job)


@pytest.mark.parametrize(
    "moments", all_but_first([["ProcessStarted", "ProcessExited"], ["RetryJob"] * 3, ["StartJob"] * 4])
)
def test_three_times_on_larger_devices_whenever_the_daemon_is_killed(
    make_daemon: Make, tmp_path: Path, moments: list[str]
) -> None:
    """The fifth device is larger still, and is not tried: three times are enough."""
    daemon = make_daemon(*FIVE, "--placement", "first-fit").started()
    job = fails(daemon, tmp_path / "starts", 99, MESSAGE, exclusive=True, persistent_bytes=10 * MIB)
    seen = 0
    for kind in moments:
        if daemon.show(job)["phase"] != "ended":  # then one of the two is still to come
            daemon.until_event(lambda event, kind=kind: event["kind"] in (kind, "EndJob"), seen)
        seen = daemon.restarted().events()[-1]["seq"]
    info = daemon.wait(job)
    assert (info["outcome"], info["attempt"], (tmp_path / "starts").read_text()) == ("failed", 4, "xxxx")
    assert [attempt["device"] for attempt in info["attempts"]] == ["host0", "host1", "host2", "host3"]
    assert "it has been started again 3 times already (max_recoveries)" in info["reason"]["text"]
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
    daemon.submit(sys.executable, "-u", "-c", WAITS, str(pipe), "0", line="here")
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
    neighbour = daemon.submit(sys.executable, "-u", "-c", WAITS, str(pipe), "0", line="here")
    job = daemon.submit(sys.executable, "-S", "-u", "-c", LEAVES, str(tmp_path / "starts"), until="RetryJob")
    orphan = int(daemon.output(job).split("\n")[0])
    assert not alive(orphan), "also that which has left its session, and is nobody's child"
    info = daemon.cancelled(job)
    assert (info["outcome"], info["reason"]["text"]) == ("cancelled", "cancelled before it started")
    let_go(pipe)
    assert daemon.wait(neighbour)["outcome"] == "succeeded"
    daemon.restarted()
    assert daemon.show(job)["outcome"] == "cancelled" and (tmp_path / "starts").read_text() == "x"


def test_beside_logs_of_failed_jobs_nothing_is_started(daemon: Daemon, tmp_path: Path) -> None:
    """What is done is known from the journal; files are only looked at for jobs that have not ended."""
    jobs = [
        daemon.wait(fails(daemon, tmp_path / "out", 9, MESSAGE)),
        daemon.wait(daemon.python(f"raise SystemExit({MESSAGE!r})", retries=0)),
        daemon.wait(daemon.python("raise SystemExit('OOM')")),
    ]
    daemon.terminate()  # the end of a job is told first, and written soon after
    daemon.started()
    seen = daemon.restarted().events()[-1]["seq"]  # a number from before may be used again
    over = {"pid": None, "lane": None}
    assert [daemon.show(info["id"]) for info in jobs] == [info | over for info in jobs]
    assert daemon.wait(daemon.python("pass"))["outcome"] == "succeeded"
    starts = [event["job"] for event in daemon.events(seen) if event["kind"] == "StartJob"]
    assert starts == [jobs[-1]["id"] + 1] and (tmp_path / "out").read_text() == "xx"


def test_directories_of_a_journal_that_is_gone_are_not_taken_for_those_of_new_jobs(
    daemon: Daemon, home: Path, tmp_path: Path, pipe: Path
) -> None:
    """A daemon whose journal is broken asks for it to be moved away; what old jobs left stays."""
    old = daemon.wait(fails(daemon, tmp_path / "starts", 9, MESSAGE))["id"]
    daemon.kill()
    for name in ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"):
        (home / name).unlink(missing_ok=True)
    daemon.started()
    holder = daemon.submit(sys.executable, "-u", "-c", WAITS, str(pipe), "0", exclusive=True)
    quiet = daemon.python("raise SystemExit(1)")
    daemon.until_line(holder, "here")
    daemon.restarted()
    assert holder > old and daemon.show(holder)["phase"] == "running"
    let_go(pipe)
    assert daemon.wait(holder)["outcome"] == "succeeded"
    info = daemon.wait(quiet)
    assert (info["exit_code"], info["attempt"], daemon.output(quiet)) == (1, 1, "")


# After a restart of the machine: jobs that ran are lost, or start again if they were submitted with --requeue


#: Says which start it is, and stops there the first time.
FIRST_WAITS = """
import os, signal, sys
with open(sys.argv[1], "a") as file:
    file.write("x")
number = os.path.getsize(sys.argv[1])
print("start", number, flush=True)
if number <= 1:
    signal.pause()
sys.exit(int(sys.argv[2]))
"""


def start(daemon: Daemon, starts: Path, code: int = 0, **fields: object) -> int:
    return daemon.submit("python3", "-u", "-c", FIRST_WAITS, str(starts), str(code), **fields, line="start 1")


def restart_machine(daemon: Daemon, jobs: Sequence[int], boot: str = "an earlier one") -> None:
    """As the daemon finds it afterwards: no process of before, and another boot id than the journal has."""
    pids = [daemon.show(job)["pid"] for job in jobs]
    shims = [parent_of(pid) for pid in pids]
    daemon.kill()
    descriptors = [os.pidfd_open(pid) for pid in (*shims, *pids)]
    for descriptor in descriptors:
        with suppress(ProcessLookupError):  # a job ends with its shim
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    for descriptor in descriptors:
        readable(descriptor, None)  # it has ended
        os.close(descriptor)
    assert sql(daemon.home / "journal.sqlite", "UPDATE meta SET value = ? WHERE key = 'boot_id' RETURNING key", boot)
    daemon.started()


def test_what_ran_starts_again_or_is_lost(daemon: Daemon, tmp_path: Path) -> None:
    again = start(daemon, tmp_path / "again", requeue=True)
    lost = start(daemon, tmp_path / "lost", retries=5)
    follows = daemon.python("pass", after=[again])
    restart_machine(daemon, [again, lost])
    info = daemon.wait(lost)
    assert (info["outcome"], info["attempt"]) == ("lost", 1)
    assert info["reason"] == {"code": "machine_restarted", "text": "the machine restarted"}
    info = daemon.wait(again)
    assert (info["outcome"], info["attempt"]) == ("succeeded", 2), daemon.log()
    first = info["attempts"][0]
    assert (first["text"], first["exit_code"], first["log"]) == ("the machine restarted", None, "log")
    assert daemon.output(again) == "start 2\n"
    assert daemon.wait(follows)["outcome"] == "succeeded"
    assert daemon.restarted().show(again)["attempt"] == 2, "a daemon that dies again does not count it twice"
    assert sql(daemon.home / "journal.sqlite", "SELECT value FROM meta WHERE key = 'boot_id'") == [(boot_id(),)]


@pytest.mark.parametrize(("retries", "attempts"), [(0, 2), (1, 3)])
def test_a_restart_of_the_machine_counts_as_no_retry(
    make_daemon: Make, tmp_path: Path, retries: int, attempts: int
) -> None:
    """Neither before another restart of the daemon nor after it."""
    daemon = make_daemon(limits='retry_pause = "10ms"\n').started()
    job = start(daemon, tmp_path / "starts", 3, requeue=True, retries=retries)
    restart_machine(daemon, [job])
    info = daemon.wait(job)
    assert (info["outcome"], info["exit_code"], info["attempt"]) == ("failed", 3, attempts)


def test_after_a_restart_of_the_machine_there_is_no_pause(make_daemon: Make, tmp_path: Path) -> None:
    daemon = make_daemon(limits="retry_pause = 300.0\n").started()
    job = start(daemon, tmp_path / "starts", requeue=True, retries=1)
    restart_machine(daemon, [job])
    info = daemon.wait(job)
    assert (info["outcome"], info["attempt"]) == ("succeeded", 2)


def test_what_had_ended_or_not_begun_is_as_it_was(daemon: Daemon, tmp_path: Path) -> None:
    """An end that the shim has written down counts; a job that waited goes on waiting as its first attempt."""
    first = start(daemon, tmp_path / "first", requeue=True)
    ended = start(daemon, tmp_path / "ended", requeue=True)
    waits = daemon.python("pass", after=[first], requeue=True)
    Home(daemon.home).job(ended).exit.write_text('{"code":4}')
    restart_machine(daemon, [first, ended])
    info = daemon.wait(ended)
    assert (info["outcome"], info["exit_code"], info["attempt"]) == ("failed", 4, 1)
    info = daemon.wait(waits)
    assert (info["outcome"], info["attempt"]) == ("succeeded", 1)
    assert daemon.show(first)["attempt"] == 2


def test_in_the_same_boot_a_job_whose_shim_vanished_is_lost(daemon: Daemon, tmp_path: Path) -> None:
    """It may have done its work."""
    job = start(daemon, tmp_path / "starts", requeue=True)
    restart_machine(daemon, [job], boot_id())
    info = daemon.wait(job)
    assert (info["outcome"], info["reason"]["code"]) == ("lost", "lost")
