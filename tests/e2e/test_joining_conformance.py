"""The conformance workloads in processes that join, in containers and outside: bit for bit as alone.

Four processes run all of them between them, at the same time; each runs several scripts, one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.containers.conftest import containers
from tests.containers.running import MAPPED, Containers, ended
from tests.e2e.test_identical import KNOWN, TOGETHER, differing
from tests.e2e.test_joining import Joiners

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon, Daemons
    from tests.live import Workload

__all__ = ["containers"]

pytestmark = pytest.mark.nightly(
    "all conformance workloads, one after another: a minute of PyTorch",
    stays="tests/e2e/test_joining.py::test_a_process_is_a_job_beside_a_submitted_one",
)


@pytest.fixture
def joiners(jobs_environment: dict[str, str], tmp_path: Path) -> Iterator[Joiners]:
    made = Joiners(jobs_environment, tmp_path)
    yield made
    made.end()


def test_in_plain_processes(bare: Bare, daemons: Daemons, workload: type[Workload], joiners: Joiners) -> None:
    daemon = daemons()
    running = []
    for number, names in enumerate(TOGETHER):
        known = joiners.variables(daemon, name=f"joiner{number}", **KNOWN)
        running.append(joiners.start(daemon, workload("several", tuple(names)), meet="1", **known))
    expected = [bare([workload.named(name) for name in names]) for names in TOGETHER]
    daemon.meeting.begin(len(running))
    for joiner, names, alone in zip(running, TOGETHER, expected, strict=True):
        assert differing(names, joiner.result(), alone) == []
    check_sharing(daemon, [joiner.job(daemon).id for joiner in running])


@pytest.mark.parametrize("host_uid", [MAPPED, None])
def test_in_containers(
    host_uid: int | None, bare: Bare, daemons: Daemons, workload: type[Workload], containers: Containers
) -> None:
    daemon = daemons()
    scripts = [workload("several", tuple(names)) for names in TOGETHER]
    running = [containers.start(daemon, script, host_uid, meet=True, memory="8MiB/16MiB") for script in scripts]
    expected = [bare([workload.named(name) for name in names]) for names in TOGETHER]
    containers.meeting.begin(len(running))
    for container, names, alone in zip(running, TOGETHER, expected, strict=True):
        assert differing(names, container.result(daemon), alone) == []
    check_sharing(daemon, [container.job(daemon).id for container in running])


def check_sharing(daemon: Daemon, jobs: list[int]) -> None:
    infos = [ended(daemon, job) for job in jobs]
    assert [info.outcome for info in infos] == ["succeeded"] * len(jobs)
    assert len({(info.device, info.lane) for info in infos}) == 1
    assert all(info.iterations >= 15 for info in infos)
    assert min(info.switches for info in infos) >= 2, daemon.story()
