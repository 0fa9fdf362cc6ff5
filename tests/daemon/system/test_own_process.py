"""The daemon's own process: its OOM score, and when Python's garbage collector runs."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from carpool.daemon.system import pidwatch
from carpool.daemon.system.pidwatch import PidWatch
from carpool.daemon.system.processes import DAEMON, THRESHOLDS, lower_oom_score
from carpool.runtime.shim.oom_score import JOB, SHIM
from tests.daemon.daemon_harness import NOBODY, Daemon, Make, Refused, as_nobody, parent_of, submission

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


@pytest.mark.parametrize("uid", [os.geteuid(), NOBODY])
def test_jobs_first_and_the_daemon_last(daemon: Daemon, uid: int) -> None:
    submit = f"daemon.submit('/bin/sh', '-c', {TRIES!r}, env={{'CARPOOL_DISABLE': '1', 'PATH': '/usr/bin:/bin'}})"
    job = as_nobody(daemon, submit, uid)
    daemon.until_line(job, "ready")
    own, pid = score(os.getpid()), daemon.show(job)["pid"]
    assert daemon.process is not None
    assert score(daemon.process.pid) == (min(own, DAEMON) if capable() else own)
    assert score(parent_of(pid)) == max(own, SHIM)
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


#: In a process of its own: what is kept is kept for good.
CHECKS = """
import gc, weakref
from carpool.daemon.system.processes import THRESHOLDS, collect_rarely, keep_what_is_there

class Thing:
    pass

def cycle():
    thing = Thing()
    thing.itself = thing
    return weakref.ref(thing)

collect_rarely()
assert gc.get_threshold() == THRESHOLDS and gc.isenabled()
before, kept = cycle(), Thing()
keep_what_is_there()
assert before() is None, "what nobody holds is not kept"
assert gc.get_freeze_count() > 1000 and len(gc.get_objects()) < 1000
seen, later = weakref.ref(kept), cycle()
del kept
assert seen() is None, "what is kept is freed with its last reference"
gc.collect()
assert later() is None, "cycles that come later are found"
"""


def test_what_is_there_is_kept_out_of_collections() -> None:
    subprocess.run([sys.executable, "-c", CHECKS], check=True)


#: Runs in the daemon, which loads it after it is ready.
LOOKS = """
import gc
from pathlib import Path
from carpool.policies import BasePolicy

Path({found!r}).write_text(f"{{gc.get_threshold()[0]}} {{gc.get_freeze_count()}}")

class Looks(BasePolicy):
    name = "looks"
"""


def test_a_daemon_that_is_ready_has_done_so(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "looks.py").write_text(LOOKS.format(found=str(tmp_path / "found")))
    daemon.put("/v1/policy", {"name": f"{tmp_path / 'looks.py'}:Looks"})
    threshold, kept = map(int, (tmp_path / "found").read_text().split())
    assert threshold == THRESHOLDS[0] and kept > 10_000


# Processes are watched, also by a daemon that has no descriptors at first


async def test_a_process_that_cannot_be_watched_yet_has_not_ended(
    first: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon once took it for ended, and waited in its loop until it had."""
    refused, watched, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    opening = os.pidfd_open

    def refused_at_first(pid: int) -> int:
        if not refused.is_set():
            refused.set()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        watched.set()
        return opening(pid)

    monkeypatch.setattr(os, "pidfd_open", refused_at_first)
    monkeypatch.setattr(pidwatch, "AGAIN_S", 0.0)
    watch = PidWatch(first.pid, ended.set)
    assert refused.is_set() and not watch.over
    await asyncio.wait_for(watched.wait(), 30)
    assert not watch.over and not ended.is_set()
    first.kill()
    await asyncio.wait_for(ended.wait(), 30)


# A daemon without memory refuses what it cannot do, and ends


LARGE = {"X": "y" * (1 << 20)}
#: As much address space as no daemon does with: it gets no more than it has.
ADDRESSES = 32 << 20


def test_requests_are_refused_with_a_sentence_and_the_end_has_a_limit(make_daemon: Make) -> None:
    daemon = make_daemon().hurry("app.END_S", to=1.0).started()
    assert daemon.process is not None
    daemon.get("/v1/jobs")  # as soon as it has started
    resource.prlimit(daemon.process.pid, resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    with pytest.raises(Refused) as refused:
        for _ in range(30):
            daemon.post("/v1/jobs", submission("true", env=LARGE))
    assert (refused.value.status, refused.value.code) == (503, "system_error")
    assert "memory" in refused.value.message
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(30) in (0, 128 + signal.SIGALRM, -signal.SIGALRM)  # how much it could still do
    assert "Traceback" not in daemon.log()
