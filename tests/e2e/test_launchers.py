"""Jobs whose main process only starts the one that trains, as launchers do: with none of its descriptors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Bare, Daemon, Daemons, Workload

RUN = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
#: Each runs the rest of its command line.
LAUNCHERS = {
    "plain": [sys.executable, "-c", RUN],
    "with torch": [sys.executable, "-c", f"import torch; {RUN}"],
    "of a launcher": [sys.executable, "-c", f"import torch; {RUN}", sys.executable, "-c", f"import torch; {RUN}"],
    "shell": ["/bin/sh", "-c", '"$@"; exit $?', "sh"],
}


def torchrun(ranks: int) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--standalone", "--no-python"]


@pytest.mark.parametrize("name", LAUNCHERS)
def test_what_a_launcher_starts_has_the_seat(
    name: str, bare: Bare, eager_daemon: Daemon, workload: type[Workload]
) -> None:
    job = eager_daemon.submit(workload("sgd"), before=LAUNCHERS[name])
    assert [job.result()] == bare([workload("sgd")])
    info = job.info()
    assert info.iterations > 0 and info.persistent_bytes > 0


@pytest.fixture
def torchrun_alone(environment: dict[str, str], tmp_path: Path, workload: type[Workload]) -> dict[int, Any]:
    """What the ranks write without Carpool, by their number."""
    results = {}
    for ranks in (1, 2):
        out = tmp_path / f"alone{ranks}"
        command = [*torchrun(ranks), *workload("ranks").command(out)]
        subprocess.run(command, env=environment, check=True, timeout=300)
        results[ranks] = json.loads(out.read_text())
    return results


@pytest.mark.timeout(900)
def test_torchrun(torchrun_alone: dict[int, Any], daemons: Daemons, bare: Bare, workload: type[Workload]) -> None:
    """The first time beside another job.  Of two ranks on the host device one has the seat."""
    daemon = daemons()
    beside = daemon.submit(workload("sgd"))
    for ranks, expected in torchrun_alone.items():
        job = daemon.submit(workload("ranks"), before=torchrun(ranks))
        assert job.result() == expected
        assert job.info().iterations == 12
    assert [beside.result()] == bare([workload("sgd")])
