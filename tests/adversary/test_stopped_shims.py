"""No end of a job depends on a process of its user: the shim is one, and a job may stop it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.adversary.users import ATTACKER
from tests.daemon.daemon_harness import Daemon, alive, as_nobody, until

#: A daemon wholly of root's, and one with a user of its own (``carpool up --user``).
BOTH = pytest.mark.parametrize("daemon", ["whole", "separated"], indirect=True)
#: Until the daemon knows that the job runs; a shim that is stopped earlier has a test of its own.
WAITS = "until [ -e $GO ]; do :; done; "
STOPS_ONCE = WAITS + "kill -STOP $PPID; echo $$ $PPID; exec sleep 600"
#: Whoever continues the shim finds it stopped again.  The loop has left the job's session, and has no environment.
STOPS_ALWAYS = WAITS + (
    "trap '' TERM; env -i setsid sh -c 'while kill -STOP $0; do :; done' $PPID & echo $$ $PPID; while :; do wait; done"
)
KILL_AFTER_US = 100_000


def started(daemon: Daemon, text: str, **fields: object) -> tuple[int, int, int]:
    """A job of the attacker's that runs a shell; its main process and its shim, which is stopped."""
    daemon.put("/v1/policy", {"settings": {"kill_after_us": KILL_AFTER_US}})
    argv = ["env", "LD_PRELOAD=", "sh", "-c", text]
    go = daemon.home.parent / "go"
    fields = {"env": {"PATH": "/usr/bin:/bin", "GO": str(go)}, "cwd": "/"} | fields
    job: int = as_nobody(daemon, f"daemon.submit(*{argv!r}, **{fields!r})", ATTACKER)
    until(lambda: daemon.show(job)["phase"] == "running")
    go.touch()
    main, shim = map(int, next(daemon.lines(job)).split())
    until(lambda: state(shim) == "T")
    return job, main, shim


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@BOTH
def test_a_job_ends_that_stops_its_shim_without_end(daemon: Daemon) -> None:
    """Whatever the shim would do when it is continued: the daemon ends the processes by itself, the shim last."""
    job, main, shim = started(daemon, STOPS_ALWAYS)
    until(lambda: children(main))
    (loop,) = children(main)
    daemon.cancel(job)
    ended = daemon.wait(job)
    assert (ended["outcome"], ended["signal"]) == ("cancelled", signal.SIGKILL), ended
    assert not any(map(alive, (main, loop)))
    until(lambda: not alive(shim))


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_time_limit_ends_a_job_whose_shim_is_stopped(daemon: Daemon) -> None:
    """The shim is continued for that, and records the end."""
    job, main, _ = started(daemon, STOPS_ONCE)
    daemon.request("PATCH", f"/v1/jobs/{job}", {"time_us": 1})
    ended = daemon.wait(job)
    assert (ended["outcome"], ended["signal"]) == ("timed_out", signal.SIGTERM), ended
    assert not alive(main)


@pytest.mark.nightly("five seconds until the daemon looks", stays="test_a_time_limit_ends_a_job_whose_shim_is_stopped")
def test_a_shim_that_is_stopped_before_it_has_told_of_the_start(daemon: Daemon) -> None:
    """By another job of the same user: whichever moment it meets, the job ends.

    Only shims of this daemon: other tests run beside this one, and their attackers are the same user.
    """
    everybody = f"while :; do pkill -STOP -u $(id -u) -f 'runtime/shim.*{daemon.home}'; done"
    stopping, *_ = started(daemon, WAITS + f"({everybody}) & echo $$ $PPID; wait")
    job = as_nobody(daemon, "daemon.submit('sleep', '600', env={}, cwd='/', time_us=1)", ATTACKER)
    assert daemon.wait(job)["outcome"] in ("failed", "timed_out")
    daemon.cancel(stopping)
    assert daemon.wait(stopping)["outcome"] == "cancelled"


def test_the_daemon_ends_such_a_job_with_itself(daemon: Daemon) -> None:
    _, main, _ = started(daemon, STOPS_ALWAYS)
    daemon.post("/v1/shutdown", {"stop_jobs": True})
    assert daemon.process is not None and daemon.process.wait(30) == 0
    assert not alive(main)


HOLD = "import fcntl, sys; lock = open(sys.argv[1], 'r+'); print(1, flush=True); fcntl.flock(lock, 2); sys.stdin.read()"


def test_whoever_holds_the_lock_of_a_job_keeps_it_alive_no_longer(daemon: Daemon, python: str) -> None:
    """The lock says that a shim lives, and is a file of the job's user."""
    job, main, _ = started(daemon, STOPS_ONCE.replace("exec sleep 600", "kill -STOP $$; exit 1"), retries=1)
    path = daemon.home / "jobs" / str(job) / "lock"
    command = [python, "-I", "-c", HOLD, str(path)]
    with subprocess.Popen(command, user=ATTACKER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") as holder:
        assert holder.stdout is not None and holder.stdin is not None
        holder.stdout.readline()
        os.kill(main, signal.SIGKILL)
        os.kill(int(Path(f"/proc/{main}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGCONT)
        until(lambda: daemon.show(job)["attempt"] == 2 and daemon.show(job)["phase"] == "starting")
        daemon.cancel(job)
        assert daemon.wait(job)["outcome"] == "cancelled"
        holder.stdin.close()


def test_a_shim_that_was_stopped_before_a_restart(daemon: Daemon) -> None:
    """The new daemon has no session with the shim, and has not started it."""
    job, main, shim = started(daemon, STOPS_ONCE)
    daemon.kill()
    daemon.hurry("restart.PATIENCE_S", to=0.1).started()
    daemon.cancel(job)
    assert daemon.wait(job)["outcome"] == "cancelled"
    assert not alive(main)
    until(lambda: not alive(shim))
