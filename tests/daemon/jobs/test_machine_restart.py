"""After a restart of the machine: jobs that ran are lost, or start again if they were submitted with --requeue."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

from carpool.daemon.system.clock import boot_id
from carpool.protocol.packets import readable
from carpool.protocol.paths import Home
from tests.daemon.daemon_harness import Daemon, Refused

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
    job = daemon.submit("python3", "-u", "-c", FIRST_WAITS, str(starts), str(code), **fields)
    daemon.until_line(job, "start 1")
    return job


def restart_machine(daemon: Daemon, jobs: Sequence[int], boot: str = "an earlier one") -> None:
    """As the daemon finds it afterwards: no process of before, and another boot id than the journal has."""
    pids = [daemon.show(job)["pid"] for job in jobs]
    shims = [int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]) for pid in pids]
    daemon.kill()
    descriptors = [os.pidfd_open(pid) for pid in (*shims, *pids)]
    for descriptor in descriptors:
        with suppress(ProcessLookupError):  # a job ends with its shim
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    for descriptor in descriptors:
        readable(descriptor, None)  # it has ended
        os.close(descriptor)
    with closing(sqlite3.connect(daemon.home / "journal.sqlite")) as connection, connection:
        changed = connection.execute("UPDATE meta SET value = ? WHERE key = 'boot_id'", (boot,))
        assert changed.rowcount == 1
    daemon.started()


def test_what_ran_starts_again_or_is_lost(make_daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    daemon = make_daemon().started()
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
    with closing(sqlite3.connect(daemon.home / "journal.sqlite")) as connection:
        stored = connection.execute("SELECT value FROM meta WHERE key = 'boot_id'").fetchone()
    assert stored == (boot_id(),)


@pytest.mark.parametrize(("retries", "attempts"), [(0, 2), (1, 3)])
def test_a_restart_of_the_machine_counts_as_no_retry(
    make_daemon: Callable[..., Daemon], home: Path, tmp_path: Path, retries: int, attempts: int
) -> None:
    """Neither before another restart of the daemon nor after it."""
    home.mkdir(mode=0o711)
    (home / "limits.toml").write_text('retry_pause = "10ms"\n')
    daemon = make_daemon().started()
    job = start(daemon, tmp_path / "starts", 3, requeue=True, retries=retries)
    restart_machine(daemon, [job])
    info = daemon.wait(job)
    assert (info["outcome"], info["exit_code"], info["attempt"]) == ("failed", 3, attempts)


def test_after_a_restart_of_the_machine_there_is_no_pause(
    make_daemon: Callable[..., Daemon], home: Path, tmp_path: Path
) -> None:
    home.mkdir(mode=0o711)
    (home / "limits.toml").write_text("retry_pause = 300.0\n")
    daemon = make_daemon().started()
    job = start(daemon, tmp_path / "starts", requeue=True, retries=1)
    restart_machine(daemon, [job])
    info = daemon.wait(job)
    assert (info["outcome"], info["attempt"]) == ("succeeded", 2)


def test_what_had_ended_or_not_begun_is_as_it_was(make_daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """An end that the shim has written down counts; a job that waited goes on waiting as its first attempt."""
    daemon = make_daemon().started()
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


def test_a_daemon_that_dies_again_does_not_count_it_twice(make_daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    daemon = make_daemon().started()
    job = start(daemon, tmp_path / "starts", requeue=True)
    restart_machine(daemon, [job])
    assert daemon.wait(job)["attempt"] == 2
    daemon.kill()
    assert daemon.started().show(job)["attempt"] == 2


def test_in_the_same_boot_a_job_whose_shim_vanished_is_lost(make_daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """It may have done its work."""
    daemon = make_daemon().started()
    job = start(daemon, tmp_path / "starts", requeue=True)
    restart_machine(daemon, [job], boot_id())
    info = daemon.wait(job)
    assert (info["outcome"], info["reason"]["code"]) == ("lost", "lost")


def test_a_job_in_the_foreground_is_not_started_again(daemon: Daemon) -> None:
    with pytest.raises(Refused, match="in the foreground"):
        daemon.python("pass", foreground=True, requeue=True)
