"""What follows from how a job has ended."""

from __future__ import annotations

import pytest

from carpool.core.events import ProcessExited, StartFailed
from carpool.core.model import JobPhase
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.shims.endings import Ending, ended_by_driver
from carpool.protocol.api import SubmitRequest

CRASHED = ProcessExited(1, None, 11)


@pytest.mark.parametrize(
    ("event", "facts", "blamed"),
    [
        (CRASHED, {}, True),
        (ProcessExited(1, 1), {}, True),  # what has died was a child
        (ProcessExited(1, 0), {}, False),
        (StartFailed(1, "no"), {}, False),
        (CRASHED, {"suspending": False}, False),
        (CRASHED, {"phase": JobPhase.STOPPING}, False),  # cancelled, or requeued by its user
        (CRASHED, {"startable": False}, False),
    ],
)
def test_a_job_that_fails_while_it_is_suspended_was_ended_by_the_driver(
    event: Ending, facts: dict[str, object], blamed: bool
) -> None:
    job = JobRecord(1, 1000, 1000, SubmitRequest(["true"], "/", {}), None, 0, phase=JobPhase.RUNNING, suspending=True)
    for name, value in facts.items():
        setattr(job, name, value)
    assert ended_by_driver(event, job) is blamed
