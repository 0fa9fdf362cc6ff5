"""Jobs for several devices, as users have them: three host devices, real processes, the real command."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli, Forks
from tests.cli.real import shared_daemon

DEVICES = ("host0", "host1", "host2")
#: As a launcher does: a process for each device, with a session of its own; if one of them ends, so does all of it.
LAUNCHER = """
import os, signal, sys
def member():
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(writer, b"ready")
        while True:
            signal.pause()
    os.read(reader, 5)
for name in os.environ["CARPOOL_DEVICES"].split(","):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        member()  # with a process of its own, which nobody waits for
        os.write(1, f"{name} {os.getpid()}\\n".encode())
        while True:
            signal.pause()
os.write(1, f"launcher {os.getpid()}\\n".encode())
_, status = os.wait()
sys.exit(5)
"""


@pytest.fixture(scope="module")
def server(forks: Forks) -> Iterator[Cli]:
    sizes = [word for _ in DEVICES for word in ("--device", "host:32MiB")]
    with shared_daemon(forks, *sizes, "--set", "kill_after_us=200ms", "--set", "reserve_after_us=1ms") as cli:
        yield cli


def events(cli: Cli) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli.ok("events", "--json", "--after-seq", "0").splitlines()]


def never_shared(happened: list[dict[str, Any]], gangs: set[int]) -> None:
    """From all placements and ends: wherever one of ``gangs`` was, nobody else was."""
    there: defaultdict[str, set[int]] = defaultdict(set)
    for event in happened:
        if event["kind"] == "StartJob":
            for device in (event["data"]["device"], *event["data"]["further"]):
                there[device].add(event["job"])
                assert len(there[device]) == 1 or not there[device] & gangs, (event, there)
        elif event["kind"] == "EndJob":
            for jobs in there.values():
                jobs.discard(event["job"])
    assert not any(there.values())


def test_gangs_of_two_and_three_in_contrary_order(server: Cli, tmp_path: Path) -> None:
    """Each device is busy when they come, and becomes free in an order that no two of them would choose."""
    gates = [tmp_path / name for name in DEVICES]
    everybody = []
    for gate in gates:
        os.mkfifo(gate)
        everybody.append(server.submit("--device-id", gate.name, "--", "sh", "-c", f"read line < {gate}"))
    wishes = ["host0,host1", "host2,host1", "", "host1,host0", "host0,host2", ""]
    tells = ["--", "sh", "-c", "echo $CARPOOL_DEVICES"]
    gangs = {}
    for wish in wishes:
        options = ["--gpus", "2", "--device-id", wish] if wish else ["--gpus", "3"]
        gangs[server.submit(*options, *tells)] = set(wish.split(",")) if wish else set(DEVICES)
        everybody.append(server.submit(*tells))  # small ones that come and go between
    assert {server.show(gang)["phase"] for gang in gangs} == {"queued"}
    reason = server.show(next(iter(gangs)))["reason"]
    assert reason["code"] == "gang" and "waiting for exclusive use of 2 devices: 0 of 2 free" in reason["text"]
    for gate in reversed(gates):
        gate.write_text("go\n")
    assert server("wait", "--timeout", "50s", *everybody, *gangs).returncode == 0
    for gang, wanted in gangs.items():
        assert set(server.ok("logs", gang).strip().split(",")) == wanted == set(server.show(gang)["devices"])
    never_shared(events(server), {int(gang) for gang in gangs})


def test_one_that_is_larger_than_the_server_is_refused(server: Cli) -> None:
    for options, said in (
        (["--gpus", "4"], "the job needs 4 devices at once, but there are 3"),
        (["--gpus", "3", "--device-id", "host0,host2"], "the job needs 3 devices at once, but it may use 2"),
        (["--gpus", "2", "--mem", "40MiB"], "40 MiB on each of 2 devices, but none of 3 can hold so much"),
    ):
        result = server("submit", *options, "--", "true")
        assert (result.returncode, said in result.stderr) == (5, True), result.stderr
    assert server("wait", server.submit("--gpus", "3", "true")).returncode == 0


def launched(cli: Cli, job: str) -> dict[str, int]:
    """The launcher's processes by name, once all of them are there."""
    follower = cli.start(["logs", "-f", job], stdout=-1)
    assert follower.stdout is not None
    lines = [follower.stdout.readline().split() for _ in range(1 + len(DEVICES))]
    follower.kill()
    follower.communicate()
    return {name: int(pid) for name, pid in lines}


def of_job(home: Path, job: str) -> list[int]:
    """All processes that have the job's number in their environment."""
    found, mark = [], {f"CARPOOL_JOB={job}".encode(), f"CARPOOL_HOME={home}".encode()}
    for entry in Path("/proc").iterdir():
        try:
            environment = set((entry / "environ").read_bytes().split(b"\0")) if entry.name.isdigit() else set()
        except OSError:
            continue
        if mark <= environment:
            found.append(int(entry.name))
    return found


@pytest.mark.parametrize("victim", ["host1", "launcher", "cancelled"])
def test_it_ends_as_a_whole(server: Cli, victim: str) -> None:
    """If one of its processes dies, or it is cancelled: no process is left, not even daemons that hear no signal."""
    gang = server.submit("--gpus", "3", "--", sys.executable, "-S", "-c", LAUNCHER)
    pids = launched(server, gang)
    waiting = server.submit("--device-id", "host2", "--", "true")
    assert (
        server.show(waiting)["reason"]["text"]
        == f"job {gang} has exclusive use of host2: it was submitted for 3 devices"
    )
    assert len(of_job(server.home, gang)) == 1 + 2 * len(DEVICES)
    if victim == "cancelled":
        server.ok("cancel", gang)
    else:
        os.kill(pids[victim], signal.SIGKILL)
    ended = {"host1": 5, "launcher": 128 + signal.SIGKILL, "cancelled": 128 + signal.SIGTERM}
    assert server("wait", gang).returncode == ended[victim]
    assert of_job(server.home, gang) == []
    assert server.show(gang)["outcome"] == ("cancelled" if victim == "cancelled" else "failed")
    assert server("wait", waiting).returncode == 0
