"""Jobs whose main process only starts the one that trains, as launchers do: with none of its descriptors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.tiers import all_but_first

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon, Daemons
    from tests.live import Workload

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


@pytest.mark.parametrize("name", all_but_first(LAUNCHERS))
def test_what_a_launcher_starts_has_the_seat(
    name: str, bare: Bare, eager_daemon: Daemon, workload: type[Workload]
) -> None:
    job = eager_daemon.submit(workload("sgd"), before=LAUNCHERS[name])
    assert [job.result()] == bare([workload("sgd")])
    info = job.info()
    assert info.iterations > 0 and info.persistent_bytes > 0


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches", stays="test_what_a_launcher_starts_has_the_seat"
)
@pytest.mark.parametrize("ranks", [2, 1])
def test_torchrun(
    ranks: int, environment: dict[str, str], tmp_path: Path, daemons: Daemons, bare: Bare, workload: type[Workload]
) -> None:
    """Beside another job.  Of two ranks on the host device one has the seat."""
    daemon, out = daemons(), tmp_path / "alone"
    beside = daemon.submit(workload("sgd"))
    job = daemon.submit(workload("ranks"), before=torchrun(ranks))
    subprocess.run([*torchrun(ranks), *workload("ranks").command(out)], env=environment, check=True, timeout=300)
    assert job.result() == json.loads(out.read_text())
    assert job.info().iterations == 12
    assert [beside.result()] == bare([workload("sgd")])
