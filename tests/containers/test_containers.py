"""Unmodified scripts in containers are jobs of a daemon outside: bit-identical on a device that is too small for them.

A job belongs to the uid that its process has outside of the container, and users share no lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.containers.running import MAPPED, ended
from tests.tiers import all_but_first

if TYPE_CHECKING:
    from tests.containers.running import Containers
    from tests.e2e.conftest import Bare, Daemons
    from tests.live import Workload

#: There is room for two of the three.
DEVICE, BALLAST_MIB = "host:192MiB", 60
INSIDE, OUTSIDE = ("sgd", "adam"), "ema"


@pytest.mark.parametrize("host_uid", all_but_first([MAPPED, None, 0]))
def test_containers_compute_what_they_compute_alone_beside_a_job_outside(
    host_uid: int | None, bare: Bare, daemons: Daemons, workload: type[Workload], containers: Containers
) -> None:
    daemon = daemons(DEVICE, max_lanes=2)
    about = {"meet": True, "ballast_mib": BALLAST_MIB}
    running = [containers.start(daemon, workload(name), host_uid, **about) for name in INSIDE]  # type: ignore[arg-type]
    submitted = daemon.submit(workload(OUTSIDE), meet=True, ballast_mib=BALLAST_MIB)
    expected = bare([workload(name) for name in (*INSIDE, OUTSIDE)])
    waiting = [*containers.meeting.arrive(2), *daemon.meeting.arrive(1)]
    containers.meeting.together(waiting)
    assert [*(container.result(daemon) for container in running), submitted.result()] == expected
    inside, outside = [ended(daemon, container.job(daemon).id) for container in running], submitted.info()
    assert [(job.outcome, job.exit_code, job.owner) for job in inside] == [("succeeded", 0, host_uid or 0)] * 2
    assert (outside.owner, len({job.lane for job in (*inside, outside)})) == (0, 2 if host_uid else 1)
    assert all(job.iterations > 0 and job.moved.out_bytes > 0 for job in inside), daemon.story()
