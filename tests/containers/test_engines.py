"""What `carpool docker-args` prints, understood by the engines that can be had: Docker and Podman."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.containers.bundle import visible_paths
from tests.containers.engines import Docker, Podman
from tests.containers.running import MAPPED, THREADS, docker_args, ended
from tests.leftovers import MARK, RUN
from tests.live import python_path

if TYPE_CHECKING:
    from tests.containers.running import Containers
    from tests.e2e.conftest import Bare, Daemons
    from tests.live import Workload

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
