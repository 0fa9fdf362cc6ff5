"""Signal handlers of a job's own code that touch its tensors: neither the job nor its neighbours notice."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.live import WORKLOADS
from tests.tiers import all_but_first

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon
    from tests.live import Workload


@pytest.fixture(scope="session")
def timer_handler(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library that `timer_handler.py` wants."""
    library = tmp_path_factory.mktemp("handlers") / "timer_handler.so"
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(WORKLOADS / "timer_handler.c")]
    subprocess.run(command, check=True)
    return str(library)


@pytest.mark.parametrize("iterations", all_but_first([60, 150]))
def test_a_handler_that_touches_a_tensor_at_any_instant(
    bare: Bare, eager_daemon: Daemon, workload: type[Workload], timer_handler: str, iterations: int
) -> None:
    workloads = [workload("timer_handler", (timer_handler, str(iterations))), workload("adam")]
    jobs, expected = eager_daemon.run_together(workloads, bare, together=True)
    assert [job.result() for job in jobs] == expected
    assert expected[0]["interrupted"] and expected[0]["complete"]
    assert jobs[0].info().switches >= 3
