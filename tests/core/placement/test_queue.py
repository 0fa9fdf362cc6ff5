"""The queue: Salus's algorithm 1, devices, warm starts, reservations, dependencies, refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from carpool.core import events
from carpool.core.commands import EndJob, OpenLane, ResizeLane, StartJob
from carpool.core.model import MIB, NUMBER_SETTINGS, DeviceSpec, Outcome, Sharing
from carpool.core.placement.filters import FILTERS
from tests.core.scenario import EVERY_BOUNDARY, P, Scenario, estimate, of_kind, one_device, only


def packed(**changes: int) -> Scenario:
    return one_device(policy="pack", **changes)


def starts(commands: list[object]) -> list[tuple[int, int]]:
    return [(c.job, c.lane) for c in commands if isinstance(c, StartJob)]


def test_algorithm_1_new_lane_best_lane_replaced_lane() -> None:
    scenario = packed()
    assert scenario.submit(1, estimate=estimate(100, 300))[0] == OpenLane(1, "host0", 0, 300 * MIB)
    assert scenario.submit(2, estimate=estimate(100, 200))[0] == OpenLane(2, "host0", 0, 200 * MIB)
    # 300 free.  A lane of its own would take 350: the smallest lane with room for 250 is lane 1.
    assert starts(scenario.submit(3, estimate=estimate(100, 250))) == [(3, 1)]
    # 200 free.  No lane holds 350; lane 2 (the smallest first) can grow by 150 beside 50 of its own.
    commands = scenario.submit(4, estimate=estimate(50, 350))
    assert commands[0] == ResizeLane(2, 350 * MIB) and starts(commands) == [(4, 2)]
    # Nothing is left.
    assert scenario.submit(5, estimate=estimate(50, 10)) == []
    assert scenario.why(5) == (
        "waiting for memory: needs 60 MiB (50 MiB persistent), free 0 B on host0, largest lane 350 MiB"
    )


def test_a_lane_is_never_shared_by_two_users_and_nobody_waits_for_anothers() -> None:
    scenario = one_device()
    scenario.start(1, owner=1000)
    commands = scenario.submit(2, owner=2000)  # `fair` allows one lane: one for each user
    assert OpenLane(2, "host0", 2000, 0) in commands and starts(commands) == [(2, 2)]
    assert starts(scenario.submit(3, owner=1000)) == [(3, 1)]


def test_the_devices_own_bound_counts_the_lanes_of_all_users() -> None:
    scenario = one_device(max_lanes=1)
    scenario.start(1, owner=1000)
    assert scenario.submit(2, owner=2000) == []
    assert scenario.why(2) == "waiting for a lane: all 1 of host0 are another user's"
    commands = scenario.exit(1)
    assert OpenLane(2, "host0", 2000, 0) in commands and starts(commands) == [(2, 2)]


@pytest.mark.parametrize(("by_settings", "by_device"), [(2, None), (None, 2)])
def test_the_number_of_lanes_is_bounded(by_settings: int | None, by_device: int | None) -> None:
    settings = replace(EVERY_BOUNDARY, policy="pack", max_lanes=by_settings)
    scenario = one_device(settings=settings, max_lanes=by_device)
    lanes = [starts(scenario.submit(job, estimate=estimate(10, 10)))[0][1] for job in range(1, 5)]
    assert len(set(lanes)) == 2


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"estimate": estimate(900, 200)}, "needs 1.1 GiB, but the largest device, host0, holds 1000 MiB"),
        ({"device": "gpu7"}, "there is no device 'gpu7'; devices: host0"),
        ({"after": (99,)}, "the job waits for job 99, which does not exist"),
    ],
)
def test_what_can_never_run_is_refused_at_once(scenario: Scenario, spec: dict[str, object], text: str) -> None:
    command = only(scenario.submit(1, **spec), EndJob)
    assert (command.outcome, command.reason.text) == (Outcome.REFUSED, text)


def test_who_waits_for_a_job_that_is_refused_is_refused_too(scenario: Scenario) -> None:
    scenario.start(2)
    scenario.submit(3, after=(2,))
    scenario.submit(4, after=(3,))
    ended = [(end.job, end.outcome) for end in of_kind(scenario.exit(2, code=1), EndJob)]
    assert ended == [(2, Outcome.FAILED), (3, Outcome.REFUSED), (4, Outcome.REFUSED)]
    assert scenario.why(4) == "job 3, which it waits for, ended: refused"


def test_fifo_stops_at_the_first_that_does_not_fit_and_pack_goes_on() -> None:
    for policy, expected in (("fifo", []), ("pack", [3])):
        scenario = one_device(policy=policy)
        scenario.submit(1, estimate=estimate(500, 100))
        assert scenario.submit(2, estimate=estimate(600, 100)) == []
        assert [job for job, _ in starts(scenario.submit(3, estimate=estimate(100, 100)))] == expected
        assert expected or scenario.why(3) == f"waiting behind job 2, which {policy} places first"


def test_srtf_places_the_shortest_first() -> None:
    scenario = one_device(policy="srtf")
    scenario.submit(1, estimate=estimate(900, 50))
    for job, iterations in ((2, 500), (3, 20), (4, 100)):
        scenario.submit(job, iterations=iterations, estimate=estimate(900, 50, iteration_us=1000))
    assert scenario.machine.view().queue == (3, 4, 2)
    assert [job for job, _ in starts(scenario.exit(1))] == [3]


def test_few_unknown_jobs_are_started_at_a_time() -> None:
    scenario = one_device(warm_limit=2)
    for job in (1, 2, 3):
        scenario.start(job) if job < 3 else scenario.submit(job)
    assert scenario.why(3) == "2 started jobs of host0 have not been measured yet"
    assert starts(scenario.submit(4, estimate=estimate(10, 10))) == [(4, 1)], "known jobs are bound by memory only"
    assert starts(scenario.want(1)) == [(3, 1)], "it has touched the device"


def test_a_plain_cpu_job_stops_counting_and_keeps_nothing() -> None:
    scenario = one_device(warm_limit=1)
    scenario.submit(1)
    scenario.send(events.ProcessStarted(1))
    scenario.submit(2)
    assert starts(scenario.exactly_at(10_000)) == [(2, 1)]
    scenario.submit(3, estimate=estimate(600, 100))
    scenario.send(events.ProcessStarted(3))
    assert scenario.submit(4, estimate=estimate(600, 100)) == []
    assert starts(scenario.at(20_000).last) == [(4, 1)]


def test_a_job_that_waits_for_the_grower_keeps_its_warm_place() -> None:
    scenario = one_device(warm_limit=1)
    scenario.start_each(1, 2, persistent=10)
    assert scenario.submit(3) == []


def test_a_large_job_does_not_starve() -> None:
    """Small jobs keep coming and going; after a minute the device is kept for the large one."""
    scenario = packed(reserve_after_us=60_000_000)
    for job in (1, 3, 4):
        if job == 3:
            scenario.submit(2, estimate=estimate(800, 100))
        scenario.at(job * 1_000).start(job, estimate=estimate(200, 100))
        scenario.ask(job, P, 200)
    assert "waiting for memory" in scenario.why(2)
    scenario.at(62_999).exit(1)
    assert scenario.machine.view().devices["host0"].reservation is None
    scenario.at(63_000).exit(4)
    assert scenario.machine.view().devices["host0"].reservation == 2
    assert scenario.submit(5, estimate=estimate(10, 10)) == []
    assert scenario.why(5) == "host0 is kept for job 2, which has waited too long"
    assert [job for job, _ in starts(scenario.exit(3))] == [2, 5]
    assert scenario.machine.view().devices["host0"].reservation is None


def test_a_reservation_goes_with_its_job() -> None:
    scenario = packed(reserve_after_us=1_000_000)
    for job, persistent in ((1, 300), (2, 800), (3, 100)):
        scenario.submit(job, estimate=estimate(persistent, 100))
    scenario.at(2_000)
    scenario.submit(4, estimate=estimate(10, 10))
    assert starts(scenario.send(events.CancelRequested(2))) != []


def test_without_a_device_jobs_wait() -> None:
    scenario = Scenario()
    assert scenario.submit(1) == []
    assert scenario.why(1) == "there is no device yet that the job may use"
    assert starts(scenario.device("host0", 10)) == [(1, 1)]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"weight": 0}, "weight is 0"),
        ({"weight": -5}, "weight is -5"),
        ({"iterations": 0}, "iterations is 0"),
        ({"duration_us": -1}, "duration_us is -1"),
        ({"estimate": estimate(-1, 0)}, "negative"),
    ],
)
def test_nonsense_is_refused_and_leaves_no_trace(scenario: Scenario, spec: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        scenario.submit(1, **spec)
    assert not scenario.machine.view().jobs
    assert scenario.submit(1) != []


def test_under_mps_only_one_user_is_on_a_device_at_a_time() -> None:
    """Its jobs share a server, and the faults of each: nobody else's job may be among them."""
    scenario = Scenario(replace(EVERY_BOUNDARY, policy="pack"))
    scenario.send(events.DeviceAdded(DeviceSpec("gpu0", 1000 * MIB, sharing=Sharing.MPS)))
    scenario.start(1, owner=7, estimate=estimate(100, 100))
    assert starts(scenario.submit(2, owner=7, estimate=estimate(100, 100))) == [(2, 2)], "lanes of one user are free"
    assert scenario.submit(3, owner=8, estimate=estimate(100, 100)) == []
    assert scenario.why(3) == "waiting for a lane: all 2 of gpu0 are another user's"
    scenario.send(events.CancelRequested(2))
    scenario.exit(2)
    assert starts(scenario.exit(1)) == [(3, 3)]


def test_an_exclusive_job_waits_for_an_empty_device_and_keeps_it(scenario: Scenario) -> None:
    scenario.start(1, estimate=estimate(10, 10))
    assert scenario.submit(2, estimate=estimate(10, 10), exclusive=True) == []
    assert scenario.why(2) == "waiting for exclusive use of host0: job 1 there"
    assert starts(scenario.exit(1)) == [(2, 2)]
    assert scenario.submit(3, estimate=estimate(10, 10)) == []
    assert scenario.why(3) == "job 2 has exclusive use of host0"
    assert starts(scenario.exit(2)) == [(3, 3)]
    scenario.device("host1", 500)
    assert only(scenario.submit(4, estimate=estimate(10, 10), exclusive=True), StartJob).device == "host1"


# The list of filters: what it says of each is so


def test_each_filter_has_a_rule_and_settings_that_exist() -> None:
    for each in FILTERS:
        assert each.codes and each.waits and (each.device or each.job)
        assert set(each.settings) <= set(NUMBER_SETTINGS)
