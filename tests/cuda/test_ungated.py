"""Programs that nothing of Carpool is in: who is found out, when, and what becomes of it."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from carpool.core.model import MIB
from tests.cuda.rig import STUB_UUID, Bare, Daemon, Daemons, Program, Running
from tests.emulator.nvml.values import StubNvml
from tests.tiers import all_but_first

KNOWN = {"persistent_bytes": 8 * MIB, "ephemeral_bytes": 8 * MIB}
GUEST = "plain --iterations 10 --seed 7 --meet 5"
#: Short: at every iteration the device changes hands as a whole.
OTHER = "train --iterations 2 --seed 1"
#: A dynamic program, which starts one that libcarpool is not loaded into.
UNPRELOADED = ["env", "-u", "LD_PRELOAD"]
#: The same, by its path.
STARTED = [shutil.which("env") or "/usr/bin/env", *UNPRELOADED[1:]]
OFTEN = ["--telemetry-interval=0.2s"]
STARTER = """
#include <unistd.h>
int main(int count, char **words) { return count > 1 ? execv(words[1], words + 1) : 1; }
"""


@pytest.fixture(scope="session")
def starter(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A statically linked program that runs its arguments."""
    directory = tmp_path_factory.mktemp("starter")
    (directory / "starter.c").write_text(STARTER)
    command = [os.environ.get("CC", "cc"), "-static", "starter.c", "-o", "starter"]
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        pytest.skip(f"this machine cannot link statically: {result.stderr}")
    return str(directory / "starter")


def computes(job: Running, program: str, bare: Bare) -> bool:
    return bool(job.result()["digest"] == bare.digest(Program.named(program)))


def waits_for(daemon: Daemon, other: Running, text: str) -> None:
    daemon.until(lambda: (reason := other.info().reason) is not None and text in reason.text)


def pid_of(job: Running) -> int:
    pid = job.info().pid
    assert pid is not None
    return pid


def several_samples(daemon: Daemon, pid: int) -> None:
    """Wait until the daemon has seen a process on the device more than twice."""
    taken: set[int] = set()

    def enough() -> bool:
        telemetry = daemon.client.devices()[0].telemetry
        assert telemetry is not None
        if telemetry.taken_us is not None and [process.pid for process in telemetry.processes or ()] == [pid]:
            taken.add(telemetry.taken_us // 100_000)  # the same one comes with a slightly other time
        return len(taken) > 4

    daemon.until(enough)


def test_what_a_static_launcher_starts_is_gated(daemon: Daemon, bare: Bare, starter: str) -> None:
    job = daemon.submit(OTHER, before=[starter], **KNOWN)
    assert computes(job, OTHER, bare)
    info = job.info()
    assert info.switches >= 1 and info.persistent_bytes > 0, "it had a seat"


@pytest.mark.parametrize("launcher", all_but_first(["dynamic", "static"]))
def test_a_process_beside_carpool_has_the_device_to_itself(
    daemons: Daemons, bare: Bare, nvml: StubNvml, launcher: str, request: pytest.FixtureRequest
) -> None:
    before = [request.getfixturevalue("starter"), *STARTED] if launcher == "static" else UNPRELOADED
    daemon = daemons(options=OFTEN)
    job = daemon.submit(GUEST, meet=True, before=before)
    waiting = daemon.meeting.arrive(1)
    pid = pid_of(job)
    why = f"its process {pid} uses the device outside of Carpool"
    nvml.gpu(STUB_UUID, {"process.compute": f"{pid}:{64 * MIB}"})
    daemon.until(lambda: job.info().alone == why)
    other = daemon.submit(OTHER, **KNOWN)
    waits_for(daemon, other, why)
    nvml.gpu(STUB_UUID, {"process.compute": ""})  # as if it had ended, and the job gone on
    assert computes(other, OTHER, bare)
    assert job.info().alone is None
    daemon.meeting.go(waiting)
    assert computes(job, GUEST, bare) and not job.info().checkpoint


def test_processes_with_seats_are_not_taken_for_others(daemons: Daemons, bare: Bare, nvml: StubNvml) -> None:
    daemon = daemons(options=OFTEN)
    program = f"{OTHER} --meet 1"
    job = daemon.submit(program, meet=True)
    waiting = daemon.meeting.arrive(1)
    nvml.gpu(STUB_UUID, {"process.compute": f"{pid_of(job)}:{64 * MIB}"})
    several_samples(daemon, pid_of(job))
    assert job.info().alone is None
    daemon.meeting.go(waiting)
    assert computes(job, program, bare)
