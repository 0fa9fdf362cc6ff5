"""How much work the simulator, and so the core, does for a job: calls of functions, which no busy machine changes.

A change that costs a tenth more is noticed the day it is made.  If it is worth that, or if it does less, record the
figures anew: ``python -m tests.sim.test_work`` prints them.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from carpool.core.model import Allocation, Settings
from carpool.sim.driver import simulate
from carpool.sim.generators import generate
from carpool.sim.model.options import Options, suggested_resolution_us
from tests.tiers import all_but_first

JOBS = 400
MOST_MORE = 1.10
#: Calls for each job: ways of sharing, policy and devices.  A later Python may do with fewer calls.
CALLS = {
    ("devices", "fifo", 8): 181,
    ("lanes", "fifo", 8): 1162,
    ("lanes", "fair", 8): 1536,
    ("lanes", "fifo", 800): 1298,
    ("devices", "srtf", 8): 358,
    ("devices", "srtf", 800): 381,
}


def calls(how: str, policy: str, devices: int) -> int:
    """Simulate jobs that keep four fifths of the devices busy; return the calls for each."""
    if how == "lanes":
        jobs = generate(f"salus:jobs={JOBS},early=0,mean_interarrival_s={3.03 * 60 / devices / 0.8:.6f}", 0)
        settings = Settings(policy=policy)
        options = Options(devices, settings, resolution_us=suggested_resolution_us(jobs, settings))
    else:
        jobs = generate(f"poisson:jobs={JOBS},devices={devices},load=0.83,gpus=philly", 0)
        options = Options(devices, Settings(policy=policy, allocation=Allocation.DEVICES))
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        simulate(jobs, options)
    finally:
        sys.setprofile(before)
    return count // JOBS


@pytest.mark.parametrize(("how", "policy", "devices"), all_but_first(CALLS))
def test_a_job_costs_no_more_work(how: str, policy: str, devices: int) -> None:
    recorded, now = CALLS[how, policy, devices], calls(how, policy, devices)
    assert now <= recorded * MOST_MORE, f"{now} calls for each job, {recorded} when it was recorded"


if __name__ == "__main__":
    for each in CALLS:
        print(f"    {each!r}: {calls(*each)},".replace("'", '"'))
