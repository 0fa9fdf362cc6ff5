"""The daemon and shims are killed at random points; nothing that was accepted is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import sys
import threading
import time
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path

import pytest

from carpool.protocol.packets import readable
from carpool.protocol.seat import BOARD_MAGIC, PROTOCOL
from tests.daemon.daemon_harness import FAKEJOB, Daemon, Make, Refused, alive, parent_of, until
from tests.tiers import RARER_WAY, all_but_first

#: How often the daemon is killed in a run; a few of them are in `make test`.
KILLS = all_but_first([6, 100], "a hundred kills at random points: minutes")
PATIENCE_S = 60.0
WORK = "import sys, time; time.sleep({delay}); open({path!r}, 'a').write('x'); sys.exit({code})"


class Client(threading.Thread):
    """Submits jobs as fast as it may, through all deaths of the daemon; remembers what was acknowledged."""

    def __init__(self, daemon: Daemon, directory: Path, name: str) -> None:
        super().__init__(name=name)
        self.daemon_under_test = daemon
        self.directory = directory
        self.accepted: dict[int, tuple[Path, int]] = {}
        self.stopped = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.stopped.is_set():
            number += 1
            path = self.directory / f"{self.name}-{number}"
            code = number % 3
            work = WORK.format(delay=random.Random(number).uniform(0, 0.3), path=str(path), code=code)
            try:
                if number % 5 == 0:
                    job = self.daemon_under_test.fake("attach", "rounds:20", f"exit:{code}")
                    self.accepted[job] = (Path("/dev/null"), code)
                else:
                    job = self.daemon_under_test.python(work)
                    self.accepted[job] = (path, code)
            except (OSError, HTTPException, Refused):
                self.stopped.wait(0.01)  # no daemon at the moment
                continue
            self.stopped.wait(0.1)  # a bounded load: every job is three processes


def until_accepted(clients: Sequence[Client]) -> None:
    """Return when the daemon that lives has acknowledged one more job."""
    before = sum(len(client.accepted) for client in clients)
    until(lambda: sum(len(client.accepted) for client in clients) > before, PATIENCE_S)


@pytest.mark.parametrize("kills", KILLS)
def test_killed_at_random_points_under_load_nothing_is_lost(
    make_daemon: Make, tmp_path: Path, moments: random.Random, kills: int
) -> None:
    daemon = make_daemon("--device", "host:256MiB").started()
    clients = [Client(daemon, tmp_path, f"client{n}") for n in range(2)]
    for client in clients:
        client.start()
    try:
        for number in range(kills):
            if number % 2:
                until_accepted(clients)  # else it may be killed while it recovers, every time
            # Not a synchronisation: the point of this test is that the moment does not matter.
            time.sleep(moments.uniform(0.0, 0.3))
            daemon.restarted()
    finally:
        for client in clients:
            client.stopped.set()
        for client in clients:
            client.join()
    accepted = {job: expected for client in clients for job, expected in client.accepted.items()}
    assert len(accepted) >= kills // 2, "too little load to mean anything"
    for job, (path, code) in sorted(accepted.items()):
        info = daemon.wait(job)
        outcome = "failed" if code else "succeeded"
        assert (info["outcome"], info["exit_code"]) == (outcome, code), (info, daemon.output(job), daemon.log()[-3000:])
        if path != Path("/dev/null"):
            assert path.read_text() == "x", f"job {job} ran {len(path.read_text())} times"
    for info in daemon.get("/v1/jobs")["jobs"]:
        daemon.wait(info["id"])  # those too that were recorded just before a kill, and never acknowledged
    seqs = [event["seq"] for event in daemon.events()]
    assert seqs == sorted(set(seqs))


def test_jobs_go_on_without_a_daemon(daemon: Daemon, fifo: Path) -> None:
    running = daemon.python(f"print(open({str(fifo)!r}).read()); raise SystemExit(5)")
    queued = daemon.python("print('after')", after=[daemon.python("import time; time.sleep(0.5)")])
    daemon.until("ProcessStarted", running)
    pid = daemon.show(running)["pid"]
    daemon.kill()
    assert alive(pid)
    fifo.write_text("from the fifo")
    exit_file = daemon.home / "jobs" / str(running) / "exit.json"
    pidfd_gone(pid)
    until(exit_file.exists)
    assert json.loads(exit_file.read_text())["code"] == 5
    daemon.started()
    info = daemon.wait(running)
    assert (info["outcome"], info["exit_code"]) == ("failed", 5)
    assert daemon.output(running) == "from the fifo\n"
    assert daemon.wait(queued)["outcome"] == "succeeded"


def test_sigterm_leaves_jobs_running(daemon: Daemon) -> None:
    job = daemon.python("import signal; signal.pause()", until="ProcessStarted")
    pid = daemon.show(job)["pid"]
    daemon.terminate()
    assert alive(pid)
    daemon.started()
    assert daemon.show(job)["phase"] == "running" and daemon.show(job)["pid"] == pid
    assert daemon.cancelled(job)["outcome"] == "cancelled"


def test_shutdown_with_jobs(daemon: Daemon) -> None:
    job = daemon.python("import signal; signal.pause()", until="ProcessStarted")
    pid = daemon.show(job)["pid"]
    daemon.post("/v1/shutdown", {"stop_jobs": True})
    assert daemon.process is not None and daemon.process.wait(30) == 0
    assert not alive(pid)
    daemon.started()
    assert daemon.show(job)["outcome"] == "cancelled"


@pytest.mark.nightly(RARER_WAY, stays="test_killed_at_random_points_under_load_nothing_is_lost")
def test_a_cancellation_survives_a_crash(daemon: Daemon) -> None:
    daemon.put("/v1/policy", {"settings": {"kill_after_us": 300_000}})
    code = "import signal; signal.signal(15, signal.SIG_IGN); print('ready'); signal.pause(); signal.pause()"
    job = daemon.python(code, line="ready")
    daemon.cancel(job)
    daemon.restarted()
    info = daemon.wait(job)
    assert (info["outcome"], info["signal"]) == ("cancelled", 9)


def children_of(parent: int) -> list[int]:
    names = (path.name for path in Path("/proc").iterdir())
    return [pid for pid in map(int, filter(str.isdigit, names)) if parent_of(pid) == parent]


#: What a job's main process starts, besides what says "mine": in its environment and session, out of one of them.
STRAYS = {
    "as it is": "sleep 600",
    "without its environment": "env -i sleep 600",
    "in a session of its own": "setsid sleep 600",
}


@pytest.mark.parametrize("stray", STRAYS.values(), ids=STRAYS)
def test_what_a_killed_shim_leaves_is_killed_before_its_turn_goes_on(daemon: Daemon, stray: str) -> None:
    holder = f"{sys.executable} -u {FAKEJOB} attach turn say:mine pause"
    job = daemon.submit("/bin/sh", "-c", f"{stray} & {holder}; true", line="mine")
    main = daemon.show(job)["pid"]
    left = children_of(main)
    assert len(left) == 2
    other = daemon.fake("attach", "turn", "say:next", "release")
    os.kill(parent_of(main), signal.SIGKILL)
    info = daemon.wait(job)
    assert not any(map(alive, [main, *left])) and (info["outcome"], info["exit_code"]) == ("lost", None)
    assert "(2 of its processes were left, and killed)" in info["reason"]["text"]
    assert daemon.wait(other)["outcome"] == "succeeded"


def test_what_a_shim_has_left_while_no_daemon_lived_is_killed(daemon: Daemon) -> None:
    holder = f"{sys.executable} -u {FAKEJOB} attach turn say:mine pause"
    job = daemon.submit("/bin/sh", "-c", f"{holder}; true", line="mine")
    main = daemon.show(job)["pid"]
    (left,) = children_of(main)
    daemon.kill()
    os.kill(parent_of(main), signal.SIGKILL)
    pidfd_gone(main)
    daemon.started()
    info = daemon.wait(job)
    assert not alive(left) and info["outcome"] == "lost"


def pidfd_gone(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert readable(fd, 30)
    os.close(fd)


def test_jobs_that_wait_keep_their_devices_too(make_daemon: Make) -> None:
    daemon = make_daemon("--device", "host:64MiB", "--device", "host:64MiB").started()
    first = daemon.python("import signal; print('ready'); signal.pause()", line="ready")
    waiting = daemon.python("print('done')", device="host1", after=[first])
    pid = daemon.show(first)["pid"]
    daemon.kill()
    os.kill(pid, signal.SIGTERM)
    pidfd_gone(pid)
    daemon.arguments = ()  # as the next submission starts it
    daemon.started()
    assert [device["id"] for device in daemon.get("/v1/devices")["devices"]] == ["host0", "host1"]
    daemon.wait(first)
    assert "job 1" in daemon.wait(waiting)["reason"]["text"], "and not: there is no such device"


def test_a_job_of_another_version_ends_and_says_why(daemon: Daemon) -> None:
    """Its board is that of a protocol that the next daemon does not speak."""
    job = daemon.fake("attach", "grow:p:1048576", "say:ready", "pause", line="ready")
    header = struct.Struct("=II")
    for fd in Path(f"/proc/{daemon.show(job)['pid']}/fd").iterdir():
        if "/memfd:" in str(fd.readlink()):
            with fd.open("r+b") as file:
                if file.read(header.size) == header.pack(BOARD_MAGIC, PROTOCOL):
                    file.seek(0)
                    file.write(header.pack(BOARD_MAGIC, PROTOCOL + 1))
    daemon.restarted()
    reason = daemon.wait(job)["reason"]
    assert reason["code"] == "not_adopted" and "not a board of this protocol version" in reason["text"]
