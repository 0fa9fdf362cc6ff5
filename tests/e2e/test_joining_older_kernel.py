"""Processes that join a daemon on a kernel without SO_PEERPIDFD and PIDFD_GET_INFO."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.test_joining import Joiners, ended, joiners, until
from tests.live import LiveDaemon
from tests.tiers import RARER_WAY

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemons
    from tests.live import Workload

__all__ = ["joiners"]  # a fixture
OLDER = (sys.executable, str(Path(__file__).with_name("older_kernel.py")))
STAYS = "tests/e2e/test_joining.py::test_a_process_is_a_job_beside_a_submitted_one"
PROBE = """
import fcntl, os, socket
ends = socket.socketpair()
pidfd = os.pidfd_open(os.getpid())
for call in (lambda: ends[0].getsockopt(socket.SOL_SOCKET, 77), lambda: fcntl.ioctl(pidfd, 0xC040FF0B, bytearray(64))):
    try:
        call()
    except OSError as error:
        print(error.errno)
"""


@pytest.fixture
def older_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the daemons of a test, and what they start."""
    monkeypatch.setattr(LiveDaemon, "BEFORE", OLDER)


def test_the_kernel_is_older() -> None:
    """What the other tests rest upon; all other calls are answered."""
    done = subprocess.run([*OLDER, sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["92", "25"]  # ENOPROTOOPT, ENOTTY


@pytest.mark.usefixtures("older_kernel")
@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_a_process_is_a_job_over_a_kill_of_the_daemon(
    bare: Bare, daemons: Daemons, workload: type[Workload], joiners: Joiners, tmp_path: Path
) -> None:
    daemon, release = daemons(), tmp_path / "release"
    joiner = joiners.start(daemon, workload("steady", ("until", str(release))))
    job = joiner.job(daemon)
    until(daemon, "Attached", job.id)
    daemon.kill()
    daemon.start()
    release.touch()
    result = joiner.result()
    assert result == bare([workload("steady", ("count", str(result["count"])))])[0]
    info = ended(daemon, job.id)
    assert (info.pid, info.outcome, info.exit_code) == (joiner.process.pid, "succeeded", 0)


@pytest.mark.usefixtures("older_kernel")
@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_one_that_is_killed_has_failed(
    daemons: Daemons, workload: type[Workload], joiners: Joiners, tmp_path: Path
) -> None:
    """Its parent, this test, has not collected it yet."""
    daemon = daemons()
    joiner = joiners.start(daemon, workload("holder", (str(tmp_path / "never"),)))
    job = joiner.job(daemon)
    until(daemon, "GrantTurn", job.id)
    joiner.process.kill()
    info = ended(daemon, job.id)
    assert (info.outcome, info.signal) == ("failed", signal.SIGKILL)


@pytest.mark.usefixtures("older_kernel")
@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_cancelling_ends_the_process(
    daemons: Daemons, workload: type[Workload], joiners: Joiners, tmp_path: Path
) -> None:
    daemon = daemons()
    joiner = joiners.start(daemon, workload("holder", (str(tmp_path / "never"),)))
    job = joiner.job(daemon)
    until(daemon, "GrantTurn", job.id)
    daemon.client.cancel(job.id)
    assert ended(daemon, job.id).outcome == "cancelled"
    joiner.end()
    assert joiner.process.returncode == -signal.SIGTERM
