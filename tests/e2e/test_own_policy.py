"""The policy of the guide decides about real jobs on a real daemon, and about the same jobs in the simulator."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpool.core.model import Settings
from carpool.sim.driver import simulate
from carpool.sim.model.options import Options
from carpool.sim.model.trace_job import TraceJob
from tests.live import NEVER_US
from tests.tiers import all_but_first

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Daemons, Running

SECOND = 1_000_000
TAKES = "import torch; torch.ones(100000)"
FIRST, NORMAL, URGENT = 1000, 100, 200  # weights
#: Of jobs about whose memory nothing is known only one grows at a time; here all are to wait for their turns.
MEMORY = {"persistent_bytes": 4 << 20, "ephemeral_bytes": 8 << 20}
#: With the shorter one the normal job, a little older, has aged enough.
HEAD_STARTS = [(600 * SECOND, ["urgent", "normal"]), (1, ["normal", "urgent"])]


@pytest.fixture
def policy(root: Path, tmp_path: Path) -> str:
    """Where nobody else may write, whatever the checkout is like."""
    file = Path(shutil.copy(root / "docs/examples/policies/aging.py", tmp_path))
    file.chmod(0o644)
    return f"{file}:Aging"


@pytest.mark.parametrize(("head_start_us", "expected"), all_but_first(HEAD_STARTS))
def test_real_jobs_get_their_turns_in_its_order(
    daemons: Daemons, policy: str, tmp_path: Path, head_start_us: int, expected: list[str]
) -> None:
    daemon = daemons(policy=policy, head_start_us=head_start_us, grace_us=NEVER_US)
    release = tmp_path / "release"
    os.mkfifo(release)
    first = daemon.submit_taking(f"{TAKES}; open({str(release)!r}).read()", weight=FIRST, **MEMORY)
    until(daemon, "GrantTurn", first)
    normal = daemon.submit_taking(TAKES, weight=NORMAL, **MEMORY)
    urgent = daemon.submit_taking(TAKES, weight=URGENT, **MEMORY)
    for job in (normal, urgent):
        until(daemon, "TurnWanted", job)
    release.write_text("")
    assert [job.wait().outcome for job in (first, normal, urgent)] == ["succeeded"] * 3
    names = {normal.id: "normal", urgent.id: "urgent"}
    turns = [turn for event in daemon.client.events() if (turn := turn_of(event.kind, event.job, event.data)) in names]
    assert list(dict.fromkeys(names[turn] for turn in turns)) == expected


def until(daemon: Daemon, kind: str, job: Running) -> None:
    """Return when the daemon has recorded such an event of this job."""
    with closing(daemon.client.events(follow=True)) as events:
        assert any(event.kind == kind and event.job == job.id for event in events)


def turn_of(kind: str, job: int | None, data: dict[str, object]) -> object:
    """Whose turn has begun, if one has."""
    return job if kind == "GrantTurn" else data.get("to") if kind == "TurnPassed" else None


@pytest.mark.parametrize(("head_start_us", "expected"), HEAD_STARTS)
def test_modelled_jobs_get_their_turns_in_its_order(policy: str, head_start_us: int, expected: list[str]) -> None:
    weights = {"first": FIRST, "normal": NORMAL, "urgent": URGENT}
    jobs = [TraceJob(name, at * 1000, SECOND, weight=weights[name]) for at, name in enumerate(weights)]
    result = simulate(jobs, Options(settings=Settings(policy=policy, extra={"head_start_us": head_start_us})))
    started = {one.job.id: one.started_us for one in result.jobs}
    assert sorted(expected, key=lambda name: started[name] or 0) == expected
    assert started["first"] == 0
