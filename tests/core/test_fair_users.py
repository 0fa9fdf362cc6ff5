"""`fair` between users: decayed device time decides whose job is placed next, not the number of jobs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.core import events
from carpool.core.commands import EndJob
from carpool.core.machine import Machine
from carpool.core.metering.placing_order import RUNNING_US
from carpool.core.model import Settings
from carpool.core.state.use import MOST_USERS, UserUses
from tests.core.scenario import EVERY_BOUNDARY, Scenario, estimate, one_device, started

ANNA, BEN = 1001, 1002
DAY_US = 86_400_000_000
ONE_BY_ONE = replace(EVERY_BOUNDARY, max_jobs=1, reserve_after_us=60_000_000)


class Cluster:
    """One place on one device; each job computes for a while and ends."""

    def __init__(self, chosen: Settings = ONE_BY_ONE) -> None:
        self.made = Scenario(chosen)
        self.made.device("host0", 1000)
        self.owners: dict[int, int] = {}
        self.lengths_ms: dict[int, int] = {}
        self.running: list[int] = []
        self.order: list[int] = []
        self.used_ms: Counter[int] = Counter()

    def submit(self, owner: int, ms: int, **spec: object) -> int:
        job = len(self.owners) + 1
        self.owners[job], self.lengths_ms[job] = owner, ms
        self._follow(self.made.submit(job, owner, estimate=estimate(10, 10), **spec))
        return job

    def _follow(self, commands: list[object]) -> None:
        self.running += started(commands)
        self.order += started(commands)

    def run_one(self) -> None:
        """The job that was placed first computes, and ends."""
        job = self.running.pop(0)
        self.made.send(events.ProcessStarted(job))
        self.made.send(events.Attached(job))
        self.made.want(job)
        self._follow(self.made.at(self.made.ms + self.lengths_ms[job]).last)
        self._follow(self.made.release(job, self.lengths_ms[job]))
        self.used_ms[self.owners[job]] += self.lengths_ms[job]
        self._follow(self.made.exit(job))


def test_a_user_with_a_hundred_jobs_gets_no_more_than_one_with_ten() -> None:
    cluster = Cluster()
    for _ in range(100):
        cluster.submit(ANNA, 1000)
    for _ in range(10):
        cluster.submit(BEN, 1000)
    assert "whose user has used less device time (fair)" not in cluster.made.why(2)
    for _ in range(20):
        cluster.run_one()
    assert abs(cluster.used_ms[ANNA] - cluster.used_ms[BEN]) <= 1000
    for _ in range(90):
        cluster.run_one()
    assert len(cluster.order) == 110


def test_other_policies_place_by_arrival_and_so_does_fair_without_memory_of_use() -> None:
    for way in (replace(ONE_BY_ONE, policy="pack"), replace(ONE_BY_ONE, use_half_life_us=0)):
        cluster = Cluster(way)
        for owner in (ANNA, ANNA, ANNA, BEN):
            cluster.submit(owner, 1000)
        for _ in range(4):
            cluster.run_one()
        assert cluster.order == [1, 2, 3, 4]


def test_equal_users_share_places_that_become_free_at_once() -> None:
    made = one_device(max_jobs=4)
    made.submit(1, 7, estimate=estimate(900, 50))
    for job in range(2, 10):
        made.submit(job, ANNA if job < 6 else BEN, estimate=estimate(60, 10))
    made.send(events.ProcessStarted(1))
    assert Counter(made.job(job).owner for job in started(list(made.exit(1)))) == {ANNA: 2, BEN: 2}


def test_what_is_long_ago_counts_less_and_the_half_life_may_change() -> None:
    made = Scenario(replace(EVERY_BOUNDARY, use_half_life_us=DAY_US))
    made.send(events.UseKnown(ANNA, 64_000_000, -DAY_US))
    uses = {use.owner: use.used_us for use in made.machine.uses()}
    assert uses[ANNA] == pytest.approx(32_000_000, abs=2)
    made.send(events.SettingsChanged(replace(made.machine._state.settings, use_half_life_us=DAY_US // 24)))
    made.at(3 * 3_600_000).send(events.Tick())
    (use,) = made.machine.uses()
    assert use.used_us == pytest.approx(4_000_000, rel=0.05)
    with pytest.raises(ValueError, match="must not be negative"):
        made.send(events.UseKnown(ANNA, -1, 0))


def test_a_job_for_several_devices_costs_all_of_them_and_a_service_nothing() -> None:
    made = Scenario()
    for name in ("a", "b"):
        made.device(name, 1000)
    made.start_and_want(1, ANNA, gang=2)
    made.at(1000).release(1, 1000)
    (use,) = made.machine.uses()
    assert (use.owner, use.used_us) == (ANNA, 2_000_000)


def test_a_restarted_core_goes_on_with_what_was_known() -> None:
    cluster = Cluster()
    for _ in range(3):
        cluster.submit(ANNA, 60_000)
    for _ in range(3):
        cluster.run_one()
    later = Machine(ONE_BY_ONE)
    for use in cluster.made.machine.uses():
        later.handle(use, use.at_us)
    assert list(later.uses()) == list(cluster.made.machine.uses())
    again = Cluster()
    for use in cluster.made.machine.uses():
        again.made.ms = use.at_us // 1000
        again.made.send(use)
    for owner in (BEN, ANNA, BEN):
        again.submit(owner, 1000)
    again.run_one()
    assert again.order == [1, 3]


def test_of_many_users_those_who_have_used_most_are_remembered_and_the_latest() -> None:
    uses = UserUses(DAY_US)
    for owner in range(MOST_USERS + 50):
        uses.charge(owner, 1000 + owner, 0)
    assert len(uses.users()) == MOST_USERS and uses.users()[0] == 50
    uses.charge(0, 1, 0)
    assert uses.of(0, 0) == 1 and len(uses.users()) == MOST_USERS


@given(st.integers(1, 10**15), st.lists(st.integers(0, 3 * DAY_US), max_size=6))
def test_use_falls_by_half_in_each_half_life_however_often_it_is_looked_at(used_us: int, looks: list[int]) -> None:
    uses = UserUses(DAY_US)
    uses.charge(ANNA, used_us, 0)
    found = [uses.of(ANNA, now) for now in sorted(looks)]
    assert found == sorted(found, reverse=True)
    assert uses.of(ANNA, DAY_US) == used_us >> 1 and uses.of(ANNA, 3 * DAY_US) == used_us >> 3


users = st.lists(st.tuples(st.integers(5, 15), st.integers(1, 40)), min_size=2, max_size=4)


@settings(deadline=None, max_examples=10)
@given(users, st.integers(1, 3))
def test_shares_converge_and_nobody_starves(users: list[tuple[int, int]], places: int) -> None:
    """While all have jobs that wait no user is ahead by more than what jobs that run may use; in the end all have run.

    ``users``: number and length (in seconds) of the jobs of each.
    """
    cluster = Cluster(replace(ONE_BY_ONE, max_jobs=places, use_half_life_us=1000 * DAY_US))
    left = Counter({number: jobs for number, (jobs, _) in enumerate(users)})
    for number, (jobs, seconds) in enumerate(users):
        for _ in range(jobs):
            cluster.submit(number, seconds * 1000)
    longest_ms = max(seconds for _, seconds in users) * 1000
    while cluster.running:
        left[cluster.owners[cluster.running[0]]] -= 1
        cluster.run_one()
        if min(left.values()) > places:
            spread = max(cluster.used_ms[each] for each in left) - min(cluster.used_ms[each] for each in left)
            assert spread <= 2 * (places * longest_ms + RUNNING_US // 1000)
    assert sorted(cluster.order) == sorted(cluster.owners)


def test_a_large_job_of_a_user_who_has_used_less_is_not_passed_over_for_ever() -> None:
    """Small jobs of another user come first in line only where it has used less; the large one's turn is kept."""
    made = one_device(reserve_after_us=10_000_000)
    made.send(events.UseKnown(ANNA, 600_000_000, 0))
    for job in (1, 2, 3):
        made.start(job, ANNA, estimate=estimate(200, 50), persistent=200)
    made.submit(4, BEN, estimate=estimate(800, 50))
    made.submit(5, ANNA, estimate=estimate(10, 10))
    made.at(11_000)
    assert made.machine.view().devices["host0"].reservation == 4


def test_jobs_of_one_who_has_used_more_are_not_held_up_by_those_who_have_used_less() -> None:
    """Otherwise devices would be kept for them after a while, in the order in which they came."""
    made = one_device(settings=replace(ONE_BY_ONE, reserve_after_us=10_000_000))
    made.send(events.UseKnown(ANNA, 600_000_000, 0))
    ends: list[object] = []
    for job, owner in ((1, BEN), (2, ANNA), (3, BEN), (4, BEN)):
        made.submit(job, owner, estimate=estimate(10, 10))
    for job in (1, 3):
        made.send(events.ProcessStarted(job))
        made.at(made.ms + 11_000)
        ends += made.exit(job)
    assert started(ends) == [3, 4]
    assert made.machine.view().devices["host0"].reservation is None
    assert {command.job for command in ends if isinstance(command, EndJob)} == {1, 3}


def test_users_who_have_used_as_much_overtake_each_other_no_longer_than_others() -> None:
    """The job that wants the device to itself came first, and the device is never empty."""
    made = one_device(reserve_after_us=60_000_000)
    made.start(1, ANNA, estimate=estimate(10, 10))
    made.submit(2, BEN, exclusive=True, estimate=estimate(10, 10))
    for job in range(3, 30):
        made.at(made.ms + 10_000)
        if started(list(made.submit(job, (ANNA, ANNA + 2)[job % 2], estimate=estimate(10, 10)))) == [job]:
            made.send(events.ProcessStarted(job))
        made.exit(job - 1 if job > 3 else 1)
        if made.job(2).phase == "starting":
            return
    pytest.fail("it was overtaken for ever")
