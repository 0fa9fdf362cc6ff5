"""What one job does to itself stays its own business."""

from __future__ import annotations

import re
import signal
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.watching import until
from tests.live import NEVER_US
from tests.tiers import all_but_first

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon, Daemons, Running
    from tests.live import Workload


def test_a_job_killed_inside_its_turn_harms_nobody(bare: Bare, eager_daemon: Daemon, workload: type[Workload]) -> None:
    victim = eager_daemon.submit(workload("victim"), meet=True)
    others, expected = eager_daemon.run_together([workload("adam")], bare, beside=[victim])
    assert [job.result() for job in others] == expected
    ended = victim.wait()
    assert (ended.outcome, ended.signal) == ("failed", signal.SIGKILL)
    assert victim.out.read_text() == "dying\n"


def test_a_job_that_needs_more_than_the_device_alone_sees_it(
    bare: Bare, daemons: Daemons, workload: type[Workload]
) -> None:
    """It may have what the device holds, but not more, and what it had is intact."""
    daemon = daemons("host:256MiB")
    hog = daemon.submit(workload("hog"), meet=True)
    others, expected = daemon.run_together([workload("ema")], bare, beside=[hog])
    assert [job.result() for job in others] == expected
    result = hog.result()
    assert len(result["errors"]) == 1
    assert re.search("can't allocate memory|out of memory", result["errors"][0])
    assert 128 <= result["hoarded_mib"] <= 256
    assert result["intact"]


def test_a_job_without_tensors_is_a_plain_process(bare: Bare, eager_daemon: Daemon, workload: type[Workload]) -> None:
    job = eager_daemon.submit(workload("numpy_only"))
    assert [job.result()] == bare([workload("numpy_only")])
    info = job.info()
    assert (info.switches, info.iterations, info.persistent_bytes, info.ephemeral_bytes) == (0, 0, 0, 0)


def test_a_job_without_any_boundary_is_made_to_give_way(
    bare: Bare, daemons: Daemons, workload: type[Workload], tmp_path: Path
) -> None:
    """Its turns are taken at arbitrary instructions; nobody notices."""
    daemon, release = daemons(forced_after_us=50_000), tmp_path / "release"
    # A job without iterations never counts as measured, and the others would wait for their memory until it ends.
    hints = {"persistent_bytes": 4 << 20, "ephemeral_bytes": 8 << 20}
    names = ("endless", "steady")
    jobs = [daemon.submit(workload(name, ("until", str(release))), hints=hints) for name in names]
    until(lambda: jobs[0].info().switches >= 3, daemon)
    release.touch()
    results = [job.result() for job in jobs]
    counts = [("count", str(result["count"])) for result in results]
    assert results == bare([workload(*each) for each in zip(names, counts, strict=True)])


@pytest.fixture
def crowded(daemons: Daemons) -> tuple[Daemon, Running]:
    """A device whose turn another job keeps: under fifo nobody else has one before its end."""
    daemon = daemons(policy="fifo", grace_us=NEVER_US)
    holder = daemon.submit_taking("import signal, torch; torch.ones(100000); signal.pause()")
    await_event(daemon, "GrantTurn", holder)
    return daemon, holder


def await_event(daemon: Daemon, kind: str, job: Running) -> None:
    """Return when the daemon has recorded such an event of this job."""
    with closing(daemon.client.events(follow=True)) as events:
        assert any(event.kind == kind and event.job == job.id for event in events)


@pytest.mark.parametrize(
    ("number", "reason"),
    all_but_first([(signal.SIGTERM, "Stop"), (signal.SIGINT, "KeyboardInterrupt")]),
    ids=["SIGTERM", "SIGINT"],
)
def test_a_signal_reaches_a_job_that_waits_for_its_turn(
    crowded: tuple[Daemon, Running], workload: type[Workload], number: signal.Signals, reason: str
) -> None:
    """It gets a turn to clean up in, and so its own exit code, while the other one goes on."""
    daemon, holder = crowded
    waiting = daemon.submit(workload("interrupted"))
    await_event(daemon, "TurnWanted", waiting)
    waiting.signal(number)
    ended = waiting.wait()
    assert (ended.exit_code, ended.signal) == (7, None), waiting.log()
    assert f'"reason": "{reason}"' in waiting.out.read_text()
    assert any(
        event.kind == "TurnWanted" and event.job == waiting.id and event.data["urgent"]
        for event in daemon.client.events()
    )
    assert holder.info().phase == "running"
