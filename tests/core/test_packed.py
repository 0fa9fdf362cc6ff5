"""A job that was refused memory asks for persistent memory instead of all its limits, and keeps nothing in its lane."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.core import events
from carpool.core.commands import Command, DenyMemory, GrantMemory, Offload, ResizeLane
from carpool.core.model import MIB, Memory, Oversubscribe
from tests.core.scenario import E, P, Scenario, estimate, of_kind, one_device, only


def pack(scenario: Scenario, job: int, mib: int, alive: int | None = None) -> list[Command]:
    return scenario.send(events.MemoryRequested(job, P, mib * MIB, packs=True, alive=alive))


def filled(scenario: Scenario, job: int = 1, persistent: int = 600, ephemeral: int = 400) -> None:
    """A job whose limits are these."""
    scenario.start(job, estimate=estimate(persistent, ephemeral), persistent=persistent, ephemeral=ephemeral)


@pytest.fixture
def full(scenario: Scenario) -> Scenario:
    """A job has all of the device, and has been refused more."""
    filled(scenario)
    assert refused(scenario.ask(1, E, 450))
    return scenario


def refused(commands: list[Command]) -> str:
    return str(only(commands, DenyMemory).reason.text)


def test_the_lane_is_given_up_before_the_limit_is_raised(full: Scenario) -> None:
    answer = of_kind(pack(full, 1, 990), ResizeLane | GrantMemory)
    assert answer == [ResizeLane(1, 0), GrantMemory(1, Memory(992 * MIB), P)]
    assert full.machine.view().devices["host0"].free == 8 * MIB
    assert full.ask(1, P, 1000) == [GrantMemory(1, Memory(1000 * MIB), P)]


def test_less_than_was_granted_makes_room_for_others(full: Scenario) -> None:
    pack(full, 1, 500)
    assert full.job(1).granted.total < 600 * MIB
    assert full.machine.view().devices["host0"].free >= 400 * MIB


def test_more_than_the_device_has_is_refused_and_changes_nothing(full: Scenario) -> None:
    before = full.job(1).granted
    assert "1001 MiB persistent and 0 B ephemeral" in refused(pack(full, 1, 1001))
    assert full.job(1).granted == before
    assert full.ask(1, E, 400) == [GrantMemory(1, before, E)]


def test_a_refusal_tells_the_figures_and_the_end_of_the_job_repeats_them(scenario: Scenario) -> None:
    scenario.start(1, recover=False, estimate=estimate(600, 100), persistent=600)
    scenario.start(2, estimate=estimate(100, 0), persistent=100)
    text = refused(scenario.send(events.MemoryRequested(1, E, 450 * MIB, alive=590 * MIB)))
    granted, others = (scenario.job(job).granted.total // MIB for job in (1, 2))
    assert text == (
        "the job would need 1 GiB (600 MiB persistent and 450 MiB ephemeral), but host0 holds 1000 MiB;"
        f" granted {granted} MiB, of which 590 MiB are alive; other jobs hold {others} MiB"
    )
    scenario.send(events.ProcessExited(1, 1, None, out_of_memory="device memory"))
    assert f"refused: {text}; use smaller batches, or a larger device" in scenario.why(1)


def test_a_later_request_that_is_met_takes_the_refusal_back(scenario: Scenario) -> None:
    scenario.start(1, recover=False, estimate=estimate(600, 100))
    scenario.send(events.MemoryRequested(1, P, 1100 * MIB, alive=0))
    scenario.ask(1, P, 600)
    scenario.send(events.ProcessExited(1, 1, None, out_of_memory="device memory"))
    assert "refused" not in scenario.why(1)


def test_what_another_job_of_the_lane_needs_stays() -> None:
    """Two jobs that have 900 of 1000 MiB: 500 and 100 persistent, and a lane of 300, of which the second needs 200."""
    scenario = one_device(max_lanes=1)
    filled(scenario, 1, 500, 300)
    filled(scenario, 2, 100, 200)
    assert pack(scenario, 1, 752) == []
    assert scenario.job(1).granted == Memory(500 * MIB, 300 * MIB)
    scenario.send(events.RequestWithdrawn(1, P))
    answer = of_kind(pack(scenario, 1, 648), ResizeLane | GrantMemory)
    assert answer == [ResizeLane(1, 200 * MIB), GrantMemory(1, Memory(648 * MIB), P)]
    assert scenario.machine.view().devices["host0"].free == 52 * MIB
    assert pack(scenario, 1, 752) == []
    assert GrantMemory(1, Memory(752 * MIB), P) in scenario.exit(2)


def test_others_are_moved_out_for_it() -> None:
    scenario = one_device(oversubscribe=Oversubscribe.ON)
    filled(scenario, 1, 500, 100)
    filled(scenario, 2, 300, 50)
    commands = pack(scenario, 1, 900)
    if Offload(2) not in commands:  # it has just been promised its memory
        commands = scenario.at(5_000).last
    assert Offload(2) in commands
    assert GrantMemory(1, Memory(900 * MIB), P) in scenario.send(events.Offloaded(2))


@pytest.mark.parametrize("mib", [800, 990])
def test_as_a_driver_would(mib: int) -> None:
    scenario = one_device(refuse_growth=True)
    filled(scenario)
    pack(scenario, 1, mib)
    assert scenario.job(1).granted.ephemeral == 0 and scenario.job(1).granted.persistent >= mib * MIB
    scenario.machine.check()


STEPS = st.tuples(st.sampled_from(["p", "e", "pack", "turn", "back"]), st.integers(1, 3), st.integers(1, 1000))


@given(st.lists(STEPS, max_size=60), st.sampled_from(Oversubscribe), st.sampled_from([1, 2, None]))
def test_whatever_jobs_ask_for_the_account_is_exact(
    steps: list[tuple[str, int, int]], oversubscribe: Oversubscribe, lanes: int | None
) -> None:
    """Every event of a `Scenario` is followed by a check of all invariants: no byte of the device is promised twice."""
    scenario = one_device(max_lanes=lanes, warm_limit=3)
    scenario.start_each(1, 2, 3)
    for what, job, mib in steps:
        scenario.leave(_step(scenario, what, job, mib))
    for job in (1, 2, 3):
        scenario.exit(job)
    assert scenario.machine.view().devices["host0"].free == 1000 * MIB


def _step(scenario: Scenario, what: str, job: int, mib: int) -> list[Command]:
    view = scenario.job(job)
    if view.waiting_memory:
        return scenario.at(scenario.ms + 200).last
    match what:
        case "pack":
            return pack(scenario, job, mib)
        case "turn":
            return scenario.release(job, 1) if view.holder else [] if view.waiting else scenario.want(job)
        case "back":
            return scenario.send(events.MemoryReturned(job, P, mib * MIB))
    return scenario.ask(job, P if what == "p" else E, mib)
