"""Unmodified scripts in containers, of runc, Docker and Podman, are jobs of a daemon outside: results as without.

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
import json
import sys
from pathlib import Path

from tests.containers.bundle import visible_paths
from tests.containers.engines import Docker, Podman
from tests.containers.running import THREADS, docker_args
from tests.leftovers import MARK, RUN
from tests.live import python_path

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


STAYS = "tests/containers/test_containers.py::test_containers_compute_what_they_compute_alone_beside_a_job_outside"


def of_tests(shared: Path) -> list[str]:
    """Arguments by which a container sees PyTorch and the scripts, and may write to ``shared``."""
    mounts = [f"--mount=type=bind,source={path},target={path},readonly" for path in visible_paths()]
    variables = THREADS | {MARK: RUN, "HOME": "/tmp", "PATH": f"{Path(sys.executable).parent}:/usr/bin"}
    others = [f"--env={name}={value}" for name, value in variables.items()]
    return [*mounts, f"--mount=type=bind,source={shared},target={shared}", *others]


@pytest.mark.nightly("Docker and Podman start what runc starts in another test", stays=STAYS)
@pytest.mark.parametrize(("engine", "host_uid"), [(Podman, MAPPED), (Docker, 0)], ids=["podman", "docker"])
def test_an_engine_understands_the_arguments(
    engine: type[Docker | Podman],
    host_uid: int,
    bare: Bare,
    daemons: Daemons,
    workload: type[Workload],
    containers: Containers,
) -> None:
    daemon, shared = daemons(), containers.shared
    arguments = docker_args(daemon, "inside", *engine.OPTIONS)
    site = next(number for number, word in enumerate(arguments) if word.startswith("PYTHONPATH="))
    arguments[site] += f":{python_path()}"
    used = engine(containers.root, host_uid)
    try:
        done = used.run([*of_tests(shared), *arguments], workload("sgd").command(shared / "out"))
    finally:
        used.close()
    assert "carpool: " not in done.stderr
    assert [json.loads((shared / "out").read_text())] == bare([workload("sgd")])
    (job,) = daemon.client.jobs()
    info = ended(daemon, job.id)
    assert (info.name, info.outcome, info.owner) == ("inside", "succeeded", host_uid)
    assert info.iterations > 0
