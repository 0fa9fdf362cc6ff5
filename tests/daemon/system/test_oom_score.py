"""When the machine's memory is exhausted: jobs first, shims after them, the daemon last."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from carpool.daemon.system.own_process import DAEMON, lower_oom_score
from carpool.runtime.shim.oom_score import JOB, SHIM
from tests.daemon.daemon_harness import NOBODY, Daemon, as_nobody

CAP_SYS_RESOURCE = 24
#: Says what it has, and what it has after it has tried to have what the daemon has, and then as little as its shim.
TRIES = """
mine=/proc/self/oom_score_adj
cat $mine
for wanted in -800 0; do echo $wanted > $mine; cat $mine; done 2>&-
echo ready
exec sleep 1000
"""


def capable() -> bool:
    """Whether this process, and a daemon that it starts, may lower its value."""
    (bits,) = re.findall(r"^CapEff:\s*(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return bool(int(bits, 16) & 1 << CAP_SYS_RESOURCE)


def score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def shim_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


@pytest.mark.parametrize("uid", [os.geteuid(), NOBODY])
def test_jobs_first_and_the_daemon_last(daemon: Daemon, uid: int) -> None:
    if uid != os.geteuid() != 0:
        pytest.skip("needs root to have jobs of another user")
    daemon.home.parent.chmod(0o711)
    submit = f"daemon.submit('/bin/sh', '-c', {TRIES!r}, env={{'CARPOOL_DISABLE': '1', 'PATH': '/usr/bin:/bin'}})"
    job = as_nobody(daemon, submit, uid)
    daemon.until_line(job, "ready")
    own, pid = score(os.getpid()), daemon.show(job)["pid"]
    assert daemon.process is not None
    assert score(daemon.process.pid) == (min(own, DAEMON) if capable() else own)
    assert score(shim_of(pid)) == max(own, SHIM)
    first, below, last = map(int, daemon.output(job).splitlines()[:3])
    assert first == max(own, JOB)
    if uid != 0 or not capable():
        assert (below, last) == (first, max(own, SHIM))


@pytest.mark.parametrize(("was", "becomes"), [(0, DAEMON), (300, DAEMON), (-900, -900)])
def test_the_daemon_has_less_than_others_but_not_more_than_it_was_given(tmp_path: Path, was: int, becomes: int) -> None:
    file = tmp_path / "oom_score_adj"
    file.write_text(f"{was}\n")
    lower_oom_score(file)
    assert int(file.read_text()) == becomes
