"""Which device, beside whom: placement policies, conditions of joining others, warm-up, and what is written down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from carpool.core import events
from carpool.core.commands import DenyMemory, GrantMemory, StartJob
from carpool.core.machine import Machine
from carpool.core.model import MIB, DeviceSpec, JobPhase, Load, Memory, Oversubscribe, Settings, Usage
from carpool.core.placement import candidates, queue
from carpool.core.policies.placement import BasePlacement, Key, available_placements, load_placement, register_placement
from carpool.core.policies.view import DeviceView, JobView, View
from carpool.core.state.state import State
from tests.core.scenario import EVERY_BOUNDARY, E, P, Scenario, estimate, of_kind, only, several_devices, started_on

BUSY = Load(950_000, 950_000, 600_000, 300_000)


#: Devices a, b, c ... of so many MiB, where jobs may lie side by side without a margin.
scene = partial(several_devices, margin=0)


def places(scenario: Scenario, *mib: int, first: int = 1) -> str:
    """Submit jobs of so many persistent MiB one after another; where they went (- is nowhere)."""
    found = ""
    for job, size in enumerate(mib, first):
        placed = started_on(scenario.submit(job, estimate=estimate(size, 0)))
        found += placed[0][1] if placed else "-"
    return found


ALIKE = (100, 100, 100, 100, 100, 100)


@pytest.mark.parametrize(
    ("policy", "devices", "jobs", "expected"),
    [
        ("magm", (600, 1000, 600), ALIKE, "bacbbb"),
        ("first-fit", (600, 1000, 600), ALIKE, "abcaaa"),
        ("best-fit", (600, 1000, 600), ALIKE, "acbaaa"),
        ("round-robin", (600, 1000, 600), ALIKE, "abcabc"),
        ("lug", (600, 1000, 600), ALIKE, "bacbbb"),
        ("exclusive", (600, 1000, 600), ALIKE, "abc---"),
        ("first-fit", (300, 1000), (200, 200, 200, 200, 60), "abbba"),
        ("best-fit", (300, 1000), (200, 200, 90, 60), "abab"),
    ],
)
def test_the_order_of_each_policy(policy: str, devices: tuple[int, ...], jobs: tuple[int, ...], expected: str) -> None:
    """Idle devices come first under all of them; a device that does not take the job is passed."""
    assert places(scene(*devices, placement=policy), *jobs) == expected


def test_the_least_active_device_first() -> None:
    scenario = scene(1000, 1000, 1000, placement="lug")
    assert places(scenario, 10, 10, 10) == "abc"
    for name, active in (("a", 700_000), ("b", 100_000), ("c", 300_000)):
        scenario.send(events.DeviceLoad(name, Load(active, 0)))
    assert places(scenario, 10, first=4) == "b"
    scenario.send(events.DeviceLoad("b", None))
    assert places(scenario, 10, first=5) == "c"


@pytest.mark.parametrize("changes", [False, True], ids=["it ends", "the policy changes"])
def test_nobody_joins_a_job_under_exclusive_and_the_reason_says_so(changes: bool) -> None:
    scenario = scene(1000, placement="exclusive")
    places(scenario, 10, 10)
    assert scenario.why(2) == "waiting for exclusive use of a: job 1 there, and exclusive places no job beside others"
    changed = events.SettingsChanged(replace(EVERY_BOUNDARY, policy="pack", placement="magm"))
    assert started_on(scenario.send(changed) if changes else scenario.exit(1)) == [(2, "a")]


# Conditions


CONDITIONS = [
    ({"margin": 50 * MIB}, None, "needs 900 MiB and a margin of 50 MiB beside others, free 900 MiB on a"),
    (
        {},
        events.DeviceLoad("a", BUSY),
        "a is too busy to be shared: risk(SMACT) 0.95 >= 0.80 and risk(SMOCC) 0.60 >= 0.45",
    ),
    ({}, events.DeviceLoad("a", None, "GPU lost"), "a has never answered a measurement: GPU lost"),
]


@pytest.mark.parametrize(("settings", "event", "why"), CONDITIONS, ids=["margin", "risk", "unmeasured"])
def test_who_does_not_meet_a_condition_is_tried_last_or_closed(settings: Any, event: Any, why: str) -> None:
    for strict in (0, 1):
        scenario = scene(1000, 200, placement="first-fit", placement_strict=strict, **settings)
        assert places(scenario, 100, 10) == "ab"
        if event is not None:
            scenario.send(event)
            assert places(scenario, 100, first=3) == "b", "first-fit would have said a"
        commands = scenario.submit(4, estimate=estimate(900 if event is None else 300, 0))
        assert started_on(commands) == ([] if strict else [(4, "a")])
        if strict:
            assert scenario.why(4) == why


def test_a_device_that_answers_no_more_is_stale_and_one_without_telemetry_is_open() -> None:
    scenario = scene(1000, placement_strict=1)
    places(scenario, 100)
    scenario.send(events.DeviceLoad("a", None, "no answer for 7 s"))
    assert started_on(scenario.submit(2, estimate=estimate(100, 0))) == []
    assert scenario.why(2) == "a has never answered a measurement: no answer for 7 s"
    assert started_on(scenario.send(events.DeviceLoad("a", None))) == [(2, "a")], "there is nothing to be measured"
    scenario.send(events.DeviceLoad("a", Load(0, 0)))
    scenario.send(events.DeviceLoad("a", None, "no answer for 7 s"))
    assert started_on(scenario.submit(3, estimate=estimate(100, 0))) == []
    assert scenario.why(3) == "a has stopped reporting: no answer for 7 s"


def test_an_idle_device_has_no_condition_to_meet() -> None:
    scenario = scene(1000, placement_strict=1, margin=500 * MIB)
    scenario.send(events.DeviceLoad("a", None, "lost"))
    assert places(scenario, 1000) == "a"


def test_the_margin_is_a_twentieth_by_default() -> None:
    scenario = scene(1000, placement_strict=1, margin=None)
    assert places(scenario, 100, 851, 850) == "a-a"


def test_a_device_has_so_many_jobs_at_most() -> None:
    scenario = scene(1000, 1000, max_jobs=2)
    assert places(scenario, 1, 1, 1, 1, 1) == "abab-"
    assert scenario.why(5) == "a has 2 jobs, the maximum (max_jobs)"


def test_a_large_job_gets_a_strict_device_to_itself_in_the_end() -> None:
    scenario = scene(1000, placement_strict=1, margin=100 * MIB, reserve_after_us=1_000_000)
    places(scenario, 100, 950, 50)
    assert scenario.machine.view().devices["a"].jobs == (1, 3)
    scenario.at(2_000)
    assert places(scenario, 1, first=4) == "-", "kept for job 2"
    scenario.exit(1)
    assert started_on(scenario.exit(3)) == [(2, "a")]


# Estimates


def test_without_estimates_every_job_starts_as_if_unknown() -> None:
    scenario = scene(1000, 500, use_estimates=0, warm_limit=1)
    assert places(scenario, 900, 900, 5000) == "ab-", "nothing is reserved, and what never fits is tried"
    assert scenario.job(1).reserved == Memory()
    assert scenario.why(3) == "1 started jobs of a have not been measured yet"
    scenario.send(events.SettingsChanged(replace(EVERY_BOUNDARY, policy="pack")))
    assert scenario.machine.explain(3) is None, "it was taken on without: what never fits does not begin to count"
    assert scenario.job(3).phase is JobPhase.STARTING


# Warm-up


def test_a_device_takes_nobody_else_while_a_newcomer_warms_up() -> None:
    scenario = scene(1000, 1000, warm_window_us=3_000_000, warm_limit=1)
    assert places(scenario, 100, 100, 100) == "ab-"
    assert scenario.why(3) == "a is full until job 1 has warmed up"
    for job in (1, 2):
        scenario.began(job)
    scenario.at(1_000).want(1)
    assert started_on(scenario.exactly_at(4_000)) == [(3, "a")]
    assert scenario.machine.view().devices["b"].warming == (2,), "devices warm up by themselves"
    assert places(scenario, 100, first=4) == "-"
    assert started_on(scenario.at(10_000).last) == [(4, "b")], "job 2 never touched its device"


def test_among_equals_the_device_with_fewer_newcomers_comes_first() -> None:
    scenario = scene(1000, 1000, warm_window_us=3_000_000, warm_limit=3, placement="tests.core.test_placement:Alike")
    assert places(scenario, 1, 1, 1, 1) == "abab"
    scenario.start_and_want(5, estimate=estimate(1, 0))
    scenario.at(3_000)
    assert scenario.machine.view().devices["a"].warming == (1, 3)
    assert places(scenario, 1, first=6) == "a"


@pytest.mark.parametrize("use", [lambda scene: scene.want(1), lambda scene: scene.ask(1, P, 10)])
def test_a_job_that_has_used_its_device_is_not_looked_at_later(use: Callable[[Scenario], object]) -> None:
    """Each look is an event of its own: on a device with nothing else to do nothing is planned any more."""
    scenario = scene(1000)
    scenario.start(1)
    assert scenario.machine.next_timer() == Settings().warm_timeout_us
    use(scenario)
    assert scenario.machine.next_timer() is None


@pytest.mark.parametrize("leaves", [False, True])
def test_the_window_begins_once_and_ends_with_the_job(leaves: bool) -> None:
    scenario = scene(1000, warm_window_us=2_000_000, warm_limit=1)
    scenario.start(1, estimate=estimate(10, 10), persistent=10)
    scenario.at(1_500).want(1)
    scenario.submit(2, estimate=estimate(10, 10))
    assert started_on(scenario.exit(1) if leaves else scenario.at(2_000).last) == [(2, "a")]


def test_what_was_promised_stays_reserved_until_it_has_been_observed() -> None:
    scenario = scene(1000, warm_window_us=1_000_000, warm_limit=1)
    scenario.start_and_want(1, estimate=estimate(400, 200), persistent=100)
    scenario.at(5_000)
    assert scenario.job(1).reserved == Memory(400 * MIB, 200 * MIB)
    scenario.send(events.Sampled(1, Usage(iterations=5, device_us=1)))
    assert scenario.job(1).reserved.persistent < 200 * MIB


# Growth


def test_growth_that_does_not_fit_fails_at_once_where_drivers_are_followed() -> None:
    scenario = scene(1000, refuse_growth=1)
    for job in (1, 2):
        scenario.start(job)
        assert of_kind(scenario.ask(job, P, 450), GrantMemory), "nobody is measured first"
    reason = only(scenario.ask(1, E, 300), DenyMemory).reason
    assert reason.code == "no_memory" and reason.text.startswith("needs 300 MiB of ephemeral memory")
    assert not scenario.machine.view().jobs[1].waiting_memory


# What is written down


def test_a_placement_says_what_it_was_decided_on() -> None:
    scenario = scene(1000, 500, 800, margin=10 * MIB)
    assert places(scenario, 100) == "a"
    scenario.submit(2, device="b", estimate=estimate(10, 0), exclusive=True)
    scenario.exit(2)
    scenario.send(events.DeviceLoad("a", BUSY))
    scenario.at(7)
    made = only(scenario.submit(3, estimate=estimate(600, 0)), StartJob).decision
    assert (made.job, made.policy, made.strict, made.when_us) == (3, "magm", False, 7000)
    assert [(row.device, row.chosen) for row in made.rows] == [("c", True), ("b", False), ("a", False)]
    _, small, busy = made.rows
    assert small.refusal is not None and small.refusal.code == "memory"
    assert busy.refusal is None, "it could have been taken"
    assert (busy.free, busy.need, busy.margin, busy.jobs) == (900 * MIB, 600 * MIB, 10 * MIB, (1,))
    assert busy.reluctance is not None and busy.reluctance.code == "risk" and busy.load == BUSY
    assert busy.key == (-900 * MIB, 1)


def test_of_many_devices_the_first_are_written_down_and_the_chosen_one() -> None:
    scenario = scene(*[100] * 10, 1000, placement="best-fit")
    made = only(scenario.submit(1, estimate=estimate(600, 0)), StartJob).decision
    assert [(row.device, row.chosen) for row in made.rows] == [*((name, False) for name in "abcdefgh"), ("k", True)]
    scenario.submit(2, estimate=estimate(600, 0))
    waits = scenario.machine.placement(2)
    assert waits is not None and len(waits.rows) == 11, "of a job that waits, all"


def test_of_very_many_devices_some_are_looked_at_and_the_willing_ones_come_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(candidates, "LOOKED_AT", 4)
    monkeypatch.setattr(candidates, "RECORDED", 3)
    scenario = scene(1000, 1000, 1000, 1000, 1000, placement="first-fit")
    assert places(scenario, 10, 10, 10, 10, 10) == "abcde"
    for device in "ab":
        scenario.send(events.DeviceLoad(device, BUSY))
    made = only(scenario.submit(6, estimate=estimate(600, 0)), StartJob).decision
    assert [(row.device, row.chosen) for row in made.rows] == [("c", True), ("d", False), ("a", False)]


def test_for_a_job_that_waits_the_present_is_told_and_asking_changes_nothing() -> None:
    scenario = scene(1000)
    places(scenario, 900, 500)
    before = scenario.machine.view()
    found = scenario.machine.placement(2)
    assert found is not None
    (row,) = found.rows
    assert not row.chosen
    assert row.refusal is not None and row.refusal.text == scenario.why(2)
    assert scenario.machine.placement(1) is None
    assert scenario.machine.view() == before
    scenario.exit(1)
    assert scenario.job(2).phase is JobPhase.STARTING


# Policies of others


class Alike(BasePlacement):
    """All devices are alike to it."""

    name = "alike"

    def device_key(self, view: View, job: JobView, device: DeviceView) -> Key:
        return ()


class Wrong(BasePlacement):
    name = "wrong"

    def device_key(self, view: View, job: JobView, device: DeviceView) -> Key:
        raise RuntimeError("oops")


register_placement("tests.core.test_placement:Alike", Alike)
register_placement("tests.core.test_placement:Wrong", Wrong)


def test_a_wrong_policy_is_replaced_by_the_default_and_told_of() -> None:
    scenario = scene(600, 1000, placement="tests.core.test_placement:Wrong")
    assert scenario.machine.placement_fault is None
    assert places(scenario, 100, 100, 100) == "bab"
    assert scenario.machine.placement_fault == "device_key failed: RuntimeError: oops"


def test_only_policies_are_registered_and_known() -> None:
    assert available_placements() == ("magm", "exclusive", "best-fit", "first-fit", "lug", "round-robin")
    with pytest.raises(ValueError, match="unknown placement policy 'x'; known: magm"):
        load_placement("x")
    with pytest.raises(ValueError, match="it has no name, collocates"):
        register_placement("x", Scenario)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is one of Carpool's own"):
        register_placement("magm", Alike)


@pytest.mark.parametrize("name", ["placement_strict", "use_estimates", "refuse_growth"])
def test_switches_are_0_or_1(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 2; it must be 0 or 1"):
        Machine(Settings(**{name: 2}))  # type: ignore[arg-type]


def test_some_devices_may_be_named() -> None:
    scenario = scene(1000, 1000, 1000)
    scenario.submit_each(1, 2, device=("c", "b"))
    scenario.submit(3, device=("a",))
    assert [scenario.job(job).device for job in (1, 2, 3)] == ["b", "c", "a"]
    scenario.submit(4, device=("a", "z"))
    assert scenario.why(4) == "there is no device 'z'; devices: a, b, c"
    scenario.send(events.DeviceAdded(DeviceSpec("z", 10)))
    with pytest.raises(ValueError, match="no device at all"):
        scenario.submit(5, device=())


def test_a_newcomer_that_was_denied_and_never_computes_warms_up_no_longer_than_others() -> None:
    for window_us in (0, 30_000_000):
        scenario = scene(1000, refuse_growth=1, warm_limit=1, warm_window_us=window_us)
        scenario.start(1, persistent=2000)
        scenario.submit(2)
        scenario.at(31_000)
        assert scenario.job(2).device == "a"


@pytest.mark.parametrize(("strict", "times"), [(0, 0), (1, 1)])
def test_a_load_makes_nobody_look_at_the_queue_unless_it_could_close_a_device(
    strict: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = scene(1000, placement_strict=strict)
    scenario.start(1, exclusive=True)
    scenario.submit(2)
    looks: list[State] = []
    whole = queue.admit

    def admit(state: State) -> None:
        looks.append(state)
        whole(state)

    monkeypatch.setattr(queue, "admit", admit)
    scenario.send(events.DeviceLoad("a", Load(0, 0)))
    assert len(looks) == times


def test_a_device_is_kept_only_where_what_is_believed_now_fits() -> None:
    scenario = scene(1000, 2000, use_estimates=0, policy="pack", placement="first-fit")
    first, second = scenario.machine.view().devices
    scenario.start(1, device=first)
    scenario.start(2, device=second)
    scenario.submit(3, exclusive=True, estimate=estimate(1300, 0))
    scenario.start(4, device=second)
    scenario.at(61_000)
    assert scenario.machine.view().devices[first].reservation == 3
    scenario.send(events.SettingsChanged(replace(scenario.machine._state.settings, use_estimates=1)))
    assert [device.reservation for device in scenario.machine.view().devices.values()] == [None, 3]


@pytest.mark.parametrize(("newcomer", "what"), [((50, 400), "a lane of its own"), ((300, 350), "memory at once")])
def test_whatever_a_policy_likes_best_nobody_waits_where_it_need_not(newcomer: tuple[int, int], what: str) -> None:
    """Both devices lack the margin, so they are tried last alike.  `best-fit` likes a, which has 100 MiB left: there
    the newcomer would take turns in job 1's lane, or wait until that has left.
    """
    scenario = Scenario(replace(EVERY_BOUNDARY, policy="pack", placement="best-fit", margin=900 * MIB))
    for name in "ab":
        scenario.device(name, 1000, oversubscribe=Oversubscribe.AUTO)
    scenario.start(1, device="a", estimate=estimate(100, 800))
    scenario.start(2, device="b", estimate=estimate(100, 300))
    assert started_on(scenario.submit(3, estimate=estimate(*newcomer))) == [(3, "b")], what
