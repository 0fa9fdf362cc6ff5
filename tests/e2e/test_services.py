"""Services beside training: right answers, from weights that come and go, and training that notices nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon, Daemons
    from tests.live import Workload

MIB = 1 << 20


def models(workload: type[Workload], count: int, mib: int, rounds: int, repeats: int = 1) -> Workload:
    return workload("service", tuple(map(str, (count, mib, rounds, repeats))))


def test_training_beside_a_service_is_bit_identical(bare: Bare, eager_daemon: Daemon, workload: type[Workload]) -> None:
    service = eager_daemon.submit_script(models(workload, 3, 4, 10), meet=True, service=1)
    jobs, expected = eager_daemon.run_together([workload("spinner"), workload("adam")], bare, beside=[service])
    assert [job.result() for job in jobs] == expected
    assert service.result() == {"right": 30, "of": 30}


def test_weights_that_do_not_fit_together_take_turns(daemons: Daemons, workload: type[Workload]) -> None:
    """Two workers with the same models share their memory; two thirds of it have to go all the time."""
    daemon = daemons("host:80MiB")
    workers = [daemon.submit_script(models(workload, 6, 8, 4), meet=True, service=1) for _ in range(2)]
    daemon.meeting.begin(2)
    assert [worker.result() for worker in workers] == [{"right": 24, "of": 24}] * 2


@pytest.mark.nightly(
    "the same on the other kind of device",
    stays="tests/cuda/test_services.py::test_a_service_that_keeps_its_turn_loses_it_and_computes_right",
)
def test_a_service_that_keeps_its_turn_loses_it_and_computes_right(
    bare: Bare, daemons: Daemons, workload: type[Workload]
) -> None:
    daemon = daemons(forced_after_us=30_000)
    service = daemon.submit_script(models(workload, 2, 8, 4, 60), meet=True, service=1)
    jobs, expected = daemon.run_together([workload("spinner")], bare, beside=[service])
    assert [job.result() for job in jobs] == expected
    assert service.result() == {"right": 8, "of": 8}


@pytest.mark.nightly(
    "the same on the other kind of device", stays="tests/cuda/test_services.py::test_services_outlive_the_daemon"
)
@pytest.mark.parametrize("kills", [3])
def test_services_outlive_the_daemon(bare: Bare, daemons: Daemons, workload: type[Workload], kills: int) -> None:
    daemon = daemons("host:256MiB")
    service = daemon.submit_script(models(workload, 4, 16, 30), meet=True, service=1)
    jobs, expected = daemon.run_together([workload("spinner")], bare, beside=[service])
    for turns in range(kills):
        switches = service.info().switches
        while service.info().phase != "ended" and service.info().switches < switches + turns + 2:
            pass
        daemon.kill()
        daemon.start()
    assert [job.result() for job in jobs] == expected
    assert service.result() == {"right": 120, "of": 120}
