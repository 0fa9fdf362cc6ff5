"""Facts about jobs as people read them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from carpool.cli.commands.jobs.show import describe
from carpool.cli.render import formatting
from carpool.cli.render.arrays import array_state
from carpool.core.model import Outcome
from carpool.protocol.api import ReasonInfo
from tests.cli.standin import ended, job

BEGIN_US = 1_790_000_000_000_000


@pytest.fixture(params=["UTC", "America/Lima", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of the reader; the daemon's may be another one."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield time.strftime("%Z", time.localtime(BEGIN_US / 1e6))
    os.environ.pop("TZ")
    time.tzset()


def test_all_times_of_a_page_are_in_the_zone_of_its_reader_which_is_named(zone: str) -> None:
    waiting = job(1, phase="queued", begin_us=BEGIN_US, submitted_us=BEGIN_US - 10**6, started_us=None, lane=None,
                  device=None, reason=ReasonInfo("begin", "to start in 1.0s"))  # fmt: skip
    facts = dict(describe(waiting, BEGIN_US))
    when = time.strftime(f"%Y-%m-%d %H:%M:%S {zone}", time.localtime(BEGIN_US / 1e6))
    assert facts["begin"] == f"not before {when}"
    assert facts["waits because"] == f"to start in 1.0s, at {when} [begin]"
    assert formatting.why(waiting) == f"to start in 1.0s, at {when}"
    assert facts["submitted"].endswith(f" {zone}")


def test_another_users_reason_is_its_code() -> None:
    hidden = job(1, phase="queued", begin_us=BEGIN_US, reason=ReasonInfo("begin", ""))
    assert formatting.why(hidden) == "begin"
    assert dict(describe(hidden, BEGIN_US))["waits because"] == "[begin]"


@pytest.mark.parametrize("outcome", Outcome)
def test_no_state_is_written_as_a_program_would(outcome: Outcome) -> None:
    """In lists, in sums of arrays, and in what the daemon says."""
    one = ended(1, str(outcome), array=1, index=0)
    for said in (formatting.state(one), array_state([one]), outcome.words):
        assert "_" not in said
