"""Services on a GPU: right answers, from weights that come and go, and training beside them notices nothing."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from carpool.core.model import MIB
from tests.cuda.rig import Bare, Daemon, Daemons, Program
from tests.cuda.test_sharing import KNOWN
from tests.devices.cuda_stub import Stub
from tests.live import Running
from tests.tiers import all_but_first


def service(daemon: Daemon, arguments: str) -> Running:
    return daemon.submit(f"service {arguments}", meet=True, service=1)


def all_right(job: Running) -> dict[str, Any]:
    result: dict[str, Any] = job.result()
    assert result["right"] == result["of"], (result, job.log())
    return result


def beside(daemon: Daemon, bare: Bare, services: list[Running], *programs: str) -> None:
    """Both compute what they should."""
    jobs = [daemon.submit(program, meet=True, **KNOWN) for program in programs]
    expected = [bare.digest(Program.named(program)) for program in programs]
    daemon.meeting.begin(len(services) + len(jobs))
    assert [job.result()["digest"] for job in jobs] == expected


@pytest.mark.nightly(
    "the same on the other kind of device",
    stays="tests/e2e/test_services.py::test_training_beside_a_service_is_bit_identical",
)
def test_training_beside_a_service_is_bit_identical(daemons: Daemons, bare: Bare, stub: Stub) -> None:
    daemon = daemons()
    worker = service(daemon, "--rounds 40")
    beside(daemon, bare, [worker], "train --iterations 300 --seed 1", "train --iterations 300 --seed 2")
    result = all_right(worker)
    assert result["counters"]["turns"] >= 120 and result["copied"] == 3
    assert result["counters"]["residue_total"] == 0, "nothing lived between requests"
    stub.wait_until_free()


@pytest.mark.nightly(
    "the same on the other kind of device",
    stays="tests/e2e/test_services.py::test_weights_that_do_not_fit_together_take_turns",
)
def test_weights_that_do_not_fit_together_take_turns(daemons: Daemons) -> None:
    """Two workers with the same models share their memory; a half of it has to go all the time."""
    daemon = daemons("cuda:0:160MiB")
    workers = [service(daemon, "--models 6 --mib 40 --rounds 4") for _ in range(2)]
    daemon.meeting.begin(2)
    copied = [all_right(worker)["copied"] for worker in workers]
    assert sum(copied) > 6


def test_a_service_that_keeps_its_turn_loses_it_and_computes_right(daemons: Daemons, bare: Bare) -> None:
    daemon = daemons(options=["--set=forced_after_us=30ms"])
    always = daemon.submit("train --iterations 1000000", **KNOWN)  # the other one may be through before the service
    daemon.until_under_way(always)
    worker = service(daemon, "--models 2 --rounds 4 --spin 20000")
    beside(daemon, bare, [worker], "train --iterations 100 --seed 3")
    assert all_right(worker)["counters"]["forced"] > 0
    daemon.client.cancel(always.id)


@pytest.mark.parametrize("kills", all_but_first([1, 3]))
def test_services_outlive_the_daemon(daemons: Daemons, bare: Bare, kills: int) -> None:
    daemon = daemons()
    worker = service(daemon, f"--models 3 --rounds {70 * kills}")
    program = f"train --iterations {100 * kills} --seed 4"
    job = daemon.submit(program, meet=True, **KNOWN)
    expected = bare.digest(Program.named(program))
    daemon.meeting.begin(2)
    for number in range(kills):
        switches = worker.info().switches
        daemon.until(lambda: worker.info().phase == "ended" or worker.info().switches > switches + number)  # noqa: B023
        daemon.kill()
        daemon.start()
    assert job.result()["digest"] == expected
    all_right(worker)


def test_a_killed_worker_takes_no_weights_along(daemon: Daemon) -> None:
    workers = [service(daemon, f"--models 3 --rounds {rounds}") for rounds in (1_000_000, 60)]
    daemon.meeting.begin(2)
    for worker in workers:
        daemon.until_under_way(worker)
    pid = workers[0].info().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    all_right(workers[1])
    daemon.stub.wait_until_free()


def test_a_worker_has_no_copy_of_an_image_that_it_pins(daemon: Daemon) -> None:
    """Workers of a model share the pages of its image, or each would take as much host memory again."""
    workers = [service(daemon, "--models 3 --mib 8 --rounds 1000000") for _ in range(2)]
    daemon.meeting.begin(2)
    for worker in workers:
        daemon.until(lambda: image_memory(worker, "Rss") >= 24 * MIB)  # noqa: B023
    assert [image_memory(worker, "Anonymous") for worker in workers] == [0, 0]
    daemon.end_all()


def image_memory(worker: Running, kind: str) -> int:
    """Of the images that it has mapped: how many bytes there are of this kind (``/proc/PID/smaps``)."""
    mappings = Path(f"/proc/{worker.info().pid}/smaps").read_text()
    sizes = re.findall(rf"memfd:carpool-model-.*?\n{kind}: +(\d+) kB", mappings, re.DOTALL)
    return sum(int(size) << 10 for size in sizes)
