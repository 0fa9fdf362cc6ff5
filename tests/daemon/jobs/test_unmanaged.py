"""What is said of jobs of which something computes without Carpool."""

from __future__ import annotations

from typing import Any

import pytest

from carpool.core.model import JobPhase
from carpool.daemon.jobs.constraints import NO_PYTORCH, STARTS_WITHIN, why_unmanaged
from carpool.daemon.jobs.table import JobRecord
from carpool.protocol.api import SubmitRequest

LATE = STARTS_WITHIN + 2


def job(**facts: Any) -> JobRecord:
    made = JobRecord(1, 0, 0, SubmitRequest(argv=["true"], cwd="/", env={}), None, 0)
    for name, value in ({"phase": JobPhase.RUNNING, "started_us": 1} | facts).items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("facts", "now", "begin"),
    [
        ({}, LATE, NO_PYTORCH),
        ({}, LATE - 1, None),
        ({"was_seated": True}, LATE, None),
        ({"phase": JobPhase.QUEUED, "started_us": None}, LATE, None),
        ({"phase": JobPhase.ENDED}, LATE, None),
        ({"was_seated": True, "refused_pid": 7}, 1, "its process 7 computes without Carpool"),
        ({"was_seated": True, "ungated_pid": 8}, 1, "its process 8 uses the device outside"),
    ],
)
def test_only_what_is_known_is_said(facts: dict[str, Any], now: int, begin: str | None) -> None:
    said = why_unmanaged(job(**facts), now)
    assert said is None if begin is None else str(said).startswith(begin)
