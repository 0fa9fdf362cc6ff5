"""`supervise`: a job in the foreground, with its terminal, under the daemon's rules."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.daemon.daemon_harness import Daemon
from tests.daemon.forks import SOURCE

SUPERVISE = """
import sys
sys.path.insert(0, {source!r})
from carpool.runtime.shim.__main__ import JobRefused, supervise
try:
    sys.exit(supervise({home!r}, {job}, foreground=True))
except JobRefused as refused:
    sys.exit(f"refused: {{refused}}")
except OSError as error:
    sys.exit(f"failed: {{error}}")
"""
WAITS = "print('ready'); import signal; signal.pause()"


def foreground(daemon: Daemon, job: int) -> subprocess.Popen[str]:
    code = SUPERVISE.format(source=str(SOURCE), home=str(daemon.home), job=job)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", code], text=True, start_new_session=True, **pipes)


def ready(daemon: Daemon, code: str) -> tuple[int, subprocess.Popen[str]]:
    """A job that has begun, and its terminal."""
    job = daemon.python(code, foreground=True)
    process = foreground(daemon, job)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return job, process


def test_input_output_and_the_exit_code_pass_through(daemon: Daemon) -> None:
    job = daemon.python("import sys; print(input()[::-1]); print('err', file=sys.stderr); sys.exit(9)", foreground=True)
    process = foreground(daemon, job)
    out, err = process.communicate("olleh\n", timeout=30)
    assert (process.returncode, out, err) == (9, "hello\n", "err\n")
    assert (daemon.wait(job)["outcome"], daemon.show(job)["exit_code"]) == ("failed", 9)


def test_a_signal_gives_128_plus_its_number(daemon: Daemon) -> None:
    job = daemon.python("import os; os.kill(os.getpid(), 15)", foreground=True)
    process = foreground(daemon, job)
    process.communicate(timeout=30)
    assert process.returncode == 128 + 15
    assert daemon.wait(job)["signal"] == 15


@pytest.mark.parametrize(
    ("ends", "returncode", "outcome"),
    [
        (lambda daemon, job, _terminal: daemon.cancel(job), 128 + 15, "cancelled"),
        (lambda _daemon, _job, terminal: terminal.send_signal(signal.SIGINT), 128 + 2, "cancelled"),
        (lambda _daemon, _job, terminal: terminal.kill(), -9, "lost"),
    ],
    ids=["it is cancelled", "signals are forwarded", "it is killed with its terminal"],
)
def test_how_it_ends(daemon: Daemon, ends: Callable[..., object], returncode: int, outcome: str) -> None:
    job, terminal = ready(daemon, WAITS)
    ends(daemon, job, terminal)
    _, err = terminal.communicate(timeout=30)
    assert terminal.returncode == returncode and ("KeyboardInterrupt" in err) == (returncode == 128 + 2)
    assert daemon.wait(job)["outcome"] == outcome


def test_it_outlives_the_daemon(daemon: Daemon) -> None:
    job, process = ready(daemon, "print('ready'); print(input())")
    daemon.kill()
    out, _ = process.communicate("done\n", timeout=30)
    assert (process.returncode, out) == (0, "done\n")
    daemon.started()
    assert daemon.wait(job)["outcome"] == "succeeded"


def test_cancelled_before_its_terminal_appears(daemon: Daemon) -> None:
    job = daemon.python("print('never')", foreground=True)
    assert daemon.cancelled(job)["outcome"] == "cancelled"
    assert "before its terminal appeared" in daemon.show(job)["reason"]["text"]
    late = foreground(daemon, job)
    out, err = late.communicate(timeout=30)
    assert (late.returncode, out) == (1, "") and "refused" in err


def test_interrupted_while_it_waits(daemon: Daemon) -> None:
    first = daemon.python("import signal; signal.pause()")
    job = daemon.python("print('never')", foreground=True, after=[first])
    process = foreground(daemon, job)
    lock = daemon.home / "jobs" / str(job) / "lock"
    daemon.until("ProcessStarted", first)
    while not lock.exists():
        assert process.poll() is None
        os.sched_yield()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    daemon.cancel_unless_ended(job)
    assert daemon.wait(job)["outcome"] == "cancelled"


def test_an_unknown_job_is_refused(daemon: Daemon) -> None:
    (daemon.home / "jobs" / "77").mkdir()
    process = foreground(daemon, 77)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and "no such job" in err


COUNTS = """
import signal, sys
seen = []
signal.signal(signal.SIGINT, lambda *_: (seen.append(1), print('interrupted', flush=True)))
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(100 + len(seen)))
print('ready')
while True:
    signal.pause()
"""


@pytest.mark.parametrize("to", ["process", "group"])
def test_one_interrupt_arrives_once(daemon: Daemon, to: str) -> None:
    """The stop button of a notebook sends SIGINT to the process group.  SIGUSR1 is forwarded after it."""
    _job, process = ready(daemon, COUNTS)
    assert process.stdout is not None
    (os.kill if to == "process" else os.killpg)(process.pid, signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=30)
    assert process.returncode == 101
