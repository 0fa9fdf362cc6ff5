"""Limits of users and groups in the core: what is passed by, what is not kept from others, what people are told."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from carpool.core import events
from carpool.core.commands import EndJob
from carpool.core.model import Allocation, Settings
from tests.core.scenario import EVERY_BOUNDARY, Scenario, estimate, started
from tests.tiers import all_but_first

ANNA, BEN = 1001, 1002


def scenario(devices: int = 1, **changes: object) -> Scenario:
    made = Scenario(replace(EVERY_BOUNDARY, **changes))  # type: ignore[arg-type]
    for number in range(devices):
        made.device(f"host{number}", 1000)
    return made


def reservations(made: Scenario) -> set[int | None]:
    return {device.reservation for device in made.machine.view().devices.values()}


def small(made: Scenario, job: int, owner: int, **spec: object) -> list[int]:
    return started(list(made.submit(job, owner, estimate=estimate(10, 10), **spec)))


def change(made: Scenario, **changes: object) -> list[int]:
    settings = replace(made.machine._state.settings, **changes)  # type: ignore[arg-type]
    return started(list(made.send(events.SettingsChanged(settings))))


def ended(made: Scenario, job: int) -> list[int]:
    made.send(events.ProcessStarted(job))
    return started(list(made.exit(job)))


@pytest.mark.parametrize("policy", ["fair", "fifo", "pack", "srtf"])
def test_jobs_over_a_users_limit_wait_and_keep_no_one_from_a_place(policy: str) -> None:
    made = scenario(user_running=2, policy=policy)
    assert [small(made, job, ANNA, user="anna") for job in (1, 2, 3)] == [[1], [2], []]
    assert made.why(3) == "user anna runs 2 jobs of at most 2 (user_running)"
    assert small(made, 4, BEN) == [4]
    assert ended(made, 4) == []
    assert ended(made, 1) == [3]


def test_who_has_many_uids_is_limited_once() -> None:
    """The lanes stay apart; what runs at once, and what has been used, is one person's."""
    made = scenario(user_running=2, policy="fair")
    assert [small(made, job, 300_000 + job, person=ANNA) for job in (1, 2, 3)] == [[1], [2], []]
    assert made.why(3) == "uid 300003 runs 2 jobs of at most 2 (user_running)"
    assert (small(made, 4, ANNA), small(made, 5, BEN)) == ([], [5])
    assert made.machine.in_use().running == Counter({ANNA: 2, BEN: 1})
    assert made.job(1).lane != made.job(2).lane
    assert ended(made, 1) == [3]


def test_a_limit_changes_at_once_and_leaves_those_alone_that_run() -> None:
    made = scenario(user_running=1)
    assert [small(made, job, ANNA) for job in (1, 2, 3, 4)] == [[1], [], [], []]
    assert change(made, user_running=3) == [2, 3]
    assert change(made, user_running=1) == []
    assert ended(made, 1) == [] and ended(made, 2) == []
    assert made.why(4) == "uid 1001 runs 1 job of at most 1 (user_running)"
    assert change(made, user_running=None) == [4]


def test_a_single_user_may_have_another_limit() -> None:
    made = scenario(user_running=1, named_limits={f"user_running.{ANNA}": 2, f"user_running.{BEN}": 0})
    assert [small(made, job, ANNA) for job in (1, 2, 3)] == [[1], [2], []]
    assert small(made, 4, BEN) == []
    assert small(made, 5, 1003) == [5] and small(made, 6, 1003) == []


def test_of_a_group_so_many_run_at_once_whoever_owns_them() -> None:
    made = scenario(named_limits={"group.vision": 2})
    assert [small(made, job, owner, group="vision") for job, owner in ((1, ANNA), (2, BEN), (3, BEN))] == [[1], [2], []]
    assert made.why(3) == "group vision runs 2 jobs of at most 2 (group.vision)"
    assert small(made, 4, BEN, group="text") == [4], "a group without a number has no limit"
    spec = made.machine._state.jobs[1].spec
    assert started(list(made.send(events.JobChanged(1, replace(spec, group=""))))) == [3], "changed while it runs"


def test_devices_of_a_user_are_those_that_the_jobs_are_on() -> None:
    made = scenario(devices=3, user_devices=1, placement="round-robin")
    assert [small(made, job, ANNA, user="anna") for job in (1, 2)] == [[1], [2]]
    assert {made.job(job).device for job in (1, 2)} == {"host0"}, "beside the user's other job, not on the next one"
    assert small(made, 3, ANNA, device="host1", user="anna") == []
    assert made.why(3) == "user anna is on 1 device (host0) of at most 1 (user_devices)"
    assert small(made, 4, BEN) == [4]
    assert small(made, 5, ANNA, gang=2, user="anna") == []
    assert made.why(5).endswith("of at most 1, and the job needs 2 (user_devices)")
    assert ended(made, 1) == []
    assert ended(made, 2) == [3]


@pytest.mark.parametrize("policy", ["fair", "fifo"])
def test_a_job_that_fits_only_where_its_user_may_not_be_closes_no_device_to_others(policy: str) -> None:
    made = scenario(devices=2, user_devices=1, policy=policy)
    assert started(list(made.submit(1, ANNA, estimate=estimate(900, 50)))) == [1]
    assert started(list(made.submit(2, ANNA, estimate=estimate(900, 50)))) == []
    assert started(list(made.submit(3, BEN, estimate=estimate(900, 50)))) == [3]


def test_no_device_is_kept_for_a_job_over_a_limit() -> None:
    """Others that are placed meanwhile have not held it up; once the limit allows it, it may be held up again."""
    made = scenario(user_running=1, reserve_after_us=1_000_000, policy="pack")
    small(made, 1, ANNA)
    assert started(made.submit(2, ANNA, estimate=estimate(985, 10))) == []
    small(made, 3, BEN)
    assert started(made.at(5_000).last) == []
    assert reservations(made) == {None}
    change(made, user_running=2)
    made.at(7_000)
    assert reservations(made) == {2}
    assert small(made, 4, ANNA) == []
    assert change(made, user_running=1) == []
    assert reservations(made) == {None}
    assert small(made, 5, BEN + 1) == [5]


def test_a_job_for_several_devices_over_a_limit_keeps_none_for_itself() -> None:
    made = scenario(devices=2, user_running=2, reserve_after_us=1_000_000, policy="pack")
    small(made, 1, ANNA, device="host0")
    assert small(made, 2, ANNA, gang=2) == []
    small(made, 3, BEN)
    made.at(2_000)
    assert reservations(made) != {None}
    change(made, user_running=1)
    assert reservations(made) == {None}
    assert small(made, 4, BEN + 1) == [4]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"named_limits": {"grup.a": 1}}, "there is no limit 'grup.a'"),
        ({"named_limits": {"user_running.anna": 1}}, "user_running.UID"),
        ({"named_limits": {"group.a": -1}}, "must be at least 0"),
        ({"user_running": -1}, "at least 0"),
        ({"user_running": 1, "allocation": Allocation.DEVICES}, "are for lanes"),
    ],
)
def test_impossible_limits_are_refused(changes: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Scenario(replace(Settings(), **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", all_but_first(range(24), stay=8))
def test_never_more_than_allowed_and_all_in_the_end(seed: int) -> None:
    draw = random.Random(seed)
    limits = {"group.a": 2, f"user_running.{ANNA}": 1}
    settings = {"policy": draw.choice(["fair", "fifo", "srtf"]), "reserve_after_us": draw.choice((0, 10_000_000))}
    made = scenario(devices=3, user_running=3, user_devices=2, named_limits=limits, **settings)
    owners = {job: draw.choice((ANNA, BEN, 1003)) for job in range(1, 31)}
    groups = {job: draw.choice(("", "a")) for job in owners}
    running, done, waiting = set[int](), set[int](), list(owners)

    def follow(commands: list[object]) -> None:
        running.update(started(commands))
        done.update(command.job for command in commands if isinstance(command, EndJob))
        running.difference_update(done)
        users = Counter(owners[job] for job in running)
        assert users[ANNA] <= 1 and max(users.values(), default=0) <= 3
        assert sum(groups[job] == "a" for job in running) <= 2
        for owner in users:
            assert len({made.job(job).device for job in running if owners[job] == owner}) <= 2

    while waiting or running:
        made.at(made.ms + draw.randrange(40_000))
        follow(list(made.last))
        if waiting and draw.random() < 0.6:
            job = waiting.pop(0)
            size, gang = estimate(draw.choice((10, 450, 985)), 5), draw.choice((1, 1, 1, 2))
            follow(list(made.submit(job, owners[job], group=groups[job], estimate=size, gang=gang)))
        elif running:
            job = draw.choice(sorted(running))
            made.send(events.ProcessStarted(job))
            if draw.random() < 0.3:
                running.discard(job)
                follow(made.send(events.ProcessExited(job, 1, out_of_memory="of 1 GiB")))
            else:
                follow(list(made.exit(job)))
    assert done == set(owners)


def test_who_is_over_a_limit_is_not_looked_at_without_end() -> None:
    """Also where jobs are overdue at once."""
    made = scenario(user_running=1, policy="fifo", reserve_after_us=0)
    assert [small(made, job, owner) for job, owner in ((1, ANNA), (2, ANNA), (3, BEN))] == [[1], [], [3]]
    made.at(5_000)
    assert made.machine.next_timer() > 5_000_000


def starts_after(made: Scenario, limit: str) -> int:
    """A large job waits for room while small jobs of the same user, or group, run two at a time, one after the other.

    How many small jobs that came later have started before the large one.
    """
    group, other = {"group": "sweep"} if limit == "group" else {}, BEN if limit == "group" else ANNA
    running = [job for job in (1, 2) if small(made, job, other, **group)]
    assert not started(list(made.submit(3, ANNA, estimate=estimate(985, 5), **group)))
    for job in range(4, 60):
        small(made, job, other, **group)
        made.at(made.ms + 1_000)
        now = started(made.last) + ended(made, running.pop(0))
        if 3 in now:
            return job - 4
        running += now
    return 56


@pytest.mark.parametrize("limit", ["user_running", "group"])
def test_a_large_job_gets_the_place_that_its_own_users_small_jobs_had(limit: str) -> None:
    limits: dict[str, object] = {"named_limits": {"group.sweep": 2}} if limit == "group" else {"user_running": 2}
    made = scenario(policy="fifo", backfill=1, reserve_after_us=5_000_000, **limits)
    assert 5 <= starts_after(made, limit) < 20


def test_who_has_run_out_of_memory_keeps_the_place_under_the_limit() -> None:
    """The job needs a device to itself, and a later job of its user does not take its place on another one."""
    made = scenario(2, policy="fifo", backfill=1, user_running=1)
    placed = [small(made, job, owner) for job, owner in ((1, ANNA), (2, BEN + 1), (3, BEN), (4, ANNA))]
    assert placed == [[1], [2], [3], []]
    made.send(events.ProcessStarted(1))
    again = made.send(events.ProcessExited(1, 1, None, out_of_memory="of 1 GiB"))
    assert started(list(again)) == [], "job 4 takes the place of job 1, which comes first"
    assert made.why(4) == "uid 1001 runs 0 jobs of at most 1 (user_running), and job 1 comes first"
    assert ended(made, 2) + ended(made, 3) == [1]
