"""Scripts that die for want of memory: told by the runtime in the job, whatever their logs say."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpool.protocol.api import PolicyRequest
from tests.e2e.watching import MIB, iterates, until_event

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemons
    from tests.live import Workload


def test_it_comes_back_alone_and_its_neighbours_are_unharmed(
    bare: Bare, daemons: Daemons, workload: type[Workload], tmp_path: Path
) -> None:
    daemon = daemons("host:256MiB")
    spill = daemon.submit(workload("spill", ("once", str(tmp_path / "starts"))), meet=True)
    others, expected = daemon.run_together([workload("sgd")], bare, beside=[spill])
    assert [job.result() for job in others] == expected
    daemon.meeting.begin(1)  # its second attempt meets nobody
    assert spill.result()["weights"]
    info = spill.info()
    assert (info.attempt, info.attempts[0].text) == (2, "ran out of memory: device memory")
    assert info.attempts[0].persistent_bytes > 0
    assert info.estimate_source == "recovery"
    assert (tmp_path / "starts").read_text() == "xx"


def test_what_is_larger_than_the_device_is_not_tried_again(
    daemons: Daemons, workload: type[Workload], tmp_path: Path
) -> None:
    daemon = daemons("host:256MiB")
    spill = daemon.submit(workload("spill", ("full", str(tmp_path / "starts"))))
    info = spill.wait()
    assert (info.outcome, info.attempt) == ("failed", 1)
    assert info.reason is not None and info.reason.code == "out_of_memory"
    assert "asked for more than all of host0 (256 MiB)" in info.reason.text
    assert (tmp_path / "starts").read_text() == "x"


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches",
    stays="test_it_comes_back_alone_and_its_neighbours_are_unharmed",
)
def test_refused_in_its_warm_up_it_comes_back_alone_and_its_neighbours_are_unharmed(
    bare: Bare, daemons: Daemons, workload: type[Workload], tmp_path: Path
) -> None:
    """As under the preset carma: memory that others have is refused, by the daemon, to a job that nobody knew."""
    daemon = daemons("host:256MiB", refuse_growth=1, warm_window_us=60_000_000)
    release, starts = tmp_path / "release", tmp_path / "starts"
    there = [daemon.submit(workload("steady", ("until", str(release))), ballast_mib=60) for _ in range(2)]
    for neighbour in there:
        iterates(daemon, neighbour)
    needy = daemon.submit(workload("needs", ("160", str(starts))))
    until_event(daemon, "RetryJob", needy)
    denied = [event for event in daemon.client.events() if event.kind == "DenyMemory" and event.job == needy.id]
    assert denied and denied[-1].data["reason"]["code"] == "no_memory", denied
    info = needy.info()
    assert (info.phase, info.attempt) == ("queued", 2)
    assert info.attempts[0].text.startswith("ran out of memory: it tried to allocate ")
    assert info.reason is not None and info.reason.code == "exclusive"
    for neighbour in there:
        iterates(daemon, neighbour)
    release.touch()
    for neighbour in there:
        result = neighbour.result()
        assert [result] == bare([workload("steady", ("count", str(result["count"])))])
        assert neighbour.info().attempt == 1
    assert [needy.result()] == bare([workload("needs", ("160", str(tmp_path / "bare")))])
    assert (needy.info().attempt, starts.read_text()) == (2, "xx")
    log = (daemon.home / "jobs" / str(needy.id) / "log").read_text()
    assert "can't allocate memory" in log, "what PyTorch said the first time"


@pytest.mark.nightly(
    "with PyTorch what another test shows with scripted jobs",
    stays="tests/daemon/jobs/test_recovery_kills.py::test_three_times_on_larger_devices_whenever_the_daemon_is_killed",
)
def test_what_really_runs_out_three_times_over_fails_with_the_whole_story(
    daemons: Daemons, workload: type[Workload], tmp_path: Path
) -> None:
    """On each device it asks for more than all of it; the largest is the last."""
    sizes = (64, 80, 96)
    daemon = daemons(*(f"host:{size}MiB" for size in sizes))
    daemon.client.set_policy(PolicyRequest(placement="first-fit"))
    starts, gate = tmp_path / "starts", tmp_path / "gate"
    gates = [tmp_path / f"gate{number}" for number in (1, 2, 3)]
    for each in gates:
        os.mkfifo(each)
    hints = {"persistent_bytes": 12 * MIB, "ephemeral_bytes": 4 * MIB}
    job = daemon.submit(workload("needs", ("1024", str(starts), str(gate))), hints=hints)
    for number, each in enumerate(gates):
        with each.open("w"):  # opens when the job reads
            assert job.info().device == f"host{number}"
            alone = {device.id: device.alone for device in daemon.client.devices()}
            assert alone == dict.fromkeys(alone) | ({f"host{number}": job.id} if number else {}), alone
    info = job.wait()
    assert (info.outcome, info.attempt, starts.read_text()) == ("failed", 3, "xxx")
    assert [attempt.device for attempt in info.attempts] == ["host0", "host1", "host2"]
    assert info.reason is not None and info.reason.code == "out_of_memory"
    assert (
        "not started again: it asked for more than all of host2 (96 MiB), and may use no larger device"
        in info.reason.text
    )
    assert all(f"attempt {number} on host{number - 1}: ran out" in info.reason.text for number in (1, 2))
    for number in (1, 2, 3):
        log = b"".join(daemon.client.logs(job.id, attempt=number)).decode()
        assert log.startswith("here\n") and "can't allocate memory" in log
    raised = [event.data["estimate"]["memory"] for event in daemon.client.events() if event.kind == "RetryJob"]
    reserved = [memory["persistent"] + memory["ephemeral"] for memory in raised]
    assert len(reserved) == 2 and reserved[0] >= 24 * MIB
    assert all(later * 2 >= earlier * 3 - MIB for earlier, later in pairwise(reserved))
