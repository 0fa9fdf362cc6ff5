"""Jobs that need more memory together than there is: who leaves, who comes back, what a move may cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.core import events
from carpool.core.commands import DropStore, GrantMemory, GrantTurn, NameSuccessor, RequestYield, WatchIdle
from carpool.core.memory.eviction import candidates, choose
from carpool.core.model import MIB, Cause, JobId, JobSpec, Memory, MemoryClass, Oversubscribe, Settings, Usage
from carpool.core.policies import BasePolicy, load_policy
from tests.core.scenario import FREE, E, P, Scenario, adopted, estimate, moved_out, of_kind, one_device, only

#: Moves may take 5 % of the time.
BOUNDED = replace(FREE, quantum_us=10_000, max_move_share_ppm=50_000)


def crowd(settings: Settings = FREE, mib: int = 1000, mode: Oversubscribe = Oversubscribe.AUTO) -> Scenario:
    return one_device(mib, oversubscribe=mode, settings=settings)


def build_and_compute(scenario: Scenario, job: JobId, persistent: int, ephemeral: int) -> None:
    """Build, and compute one turn with so much ephemeral memory; then it is idle for a while.  Sizes in MiB."""
    scenario.build(job, persistent)
    scenario.want(job)
    scenario.leave(scenario.ask(job, E, ephemeral))
    scenario.release(job, 1)
    scenario.at(scenario.ms + 3000)


def test_a_newcomer_grows_into_the_memory_of_one_that_is_idle() -> None:
    scenario = crowd()
    scenario.build(1, 900)
    scenario.start(2)
    scenario.at(2000)
    commands = scenario.ask(2, P, 800)
    assert moved_out(commands) == [1]
    following = scenario.send(events.Offloaded(1))
    assert GrantMemory(1, Memory(0, 0)) in following
    assert GrantMemory(2, Memory(800 * MIB), P) in following
    assert scenario.job(1).offloaded


def test_memory_comes_back_before_the_turn() -> None:
    scenario = crowd()
    scenario.build_each(800, 800, rest_ms=2000)
    assert moved_out(scenario.want(1)) == [2], "it has been idle since its promise was over"
    following = scenario.send(events.Offloaded(2))
    back = next(i for i, command in enumerate(following) if isinstance(command, GrantMemory) and command.job == 1)
    assert following.index(GrantTurn(1, 1)) > back
    assert scenario.job(1).granted.persistent == 800 * MIB


@pytest.mark.parametrize("keeps_turn", [False, True])
def test_a_holder_that_cannot_let_go_is_served_before_older_waiters(keeps_turn: bool) -> None:
    """It captures a CUDA graph: the older waiter would wait for its turn, and itself for what is kept for that one."""
    scenario = one_device(96, max_lanes=1, oversubscribe=Oversubscribe.AUTO, settings=FREE)
    for job in (1, 2, 3):
        scenario.start(job, estimate=estimate(72, 16))
        scenario.leave(scenario.ask(job, P, 45))
        scenario.at(scenario.ms + 2000)
    scenario.want_each(3, 1)
    commands = scenario.leave(scenario.ask(3, P, 50, keeps_turn=keeps_turn))
    answers = [command for command in commands if isinstance(command, GrantMemory) and command.answers is P]
    assert [command.job for command in answers] == [3] * keeps_turn


class Oldest(BasePolicy):
    def victim_key(self, view, victim, ahead):  # type: ignore[no-untyped-def]
        return (victim.arrival,)


@pytest.mark.parametrize(
    ("policy", "sizes", "missing", "leaves"),
    [("fair", (100, 300, 500), 250, [2]), (Oldest(), (400, 100, 450), 200, [1])],
    ids=["the cheapest of those that are large enough, not both small ones", "a policy of one's own"],
)
def test_only_as_many_leave_as_it_takes_in_the_order_of_the_policy(
    policy: str | BasePolicy, sizes: tuple[int, ...], missing: int, leaves: list[JobId]
) -> None:
    scenario = crowd()
    for job, mib in enumerate(sizes, 1):
        scenario.build(job, mib)
    scenario.at(5000)
    scenario.machine._state.policy = load_policy(policy) if isinstance(policy, str) else policy
    scenario.start(4)
    assert moved_out(scenario.ask(4, P, missing)) == leaves


def test_what_is_there_is_never_moved_while_it_fits() -> None:
    scenario = crowd()
    scenario.build_each(300, 300, 300)
    for job in (1, 2, 3, 1, 2, 3):
        assert not moved_out(scenario.want(job) + scenario.release(job, 1))


def test_the_last_in_a_round_leaves_first() -> None:
    """In a round the job that was used last comes back last: least recently used would move everything every time."""
    scenario = crowd()
    scenario.build_each(300, 300, 300)
    scenario.at(5000)
    scenario.want_each(1, 2, 3)
    scenario.start(4, persistent=300)
    assert [number for number in (1, 2, 3) if scenario.job(number).holder] == [1]
    state = scenario.machine._state
    device, newcomer = state.devices["host0"], state.jobs[4]
    scenario.release(1, 1)
    scenario.want(1)
    order = [job.id for job in choose(state, device, newcomer, 10_000 * MIB)]
    assert set(order) <= {1, 3} and 2 not in order, "2 computes"


def test_the_default_order_is_cost_times_likelihood() -> None:
    policy, scenario = load_policy("fair"), crowd()
    scenario.build_each(400, 390, rest_ms=60_000)
    view = scenario.machine.view()
    long_idle, short_idle = view.jobs[1], view.jobs[2]
    assert policy.victim_key(view, long_idle, None) < policy.victim_key(view, short_idle, None)
    assert policy.victim_key(view, short_idle, None) < policy.victim_key(view, long_idle, 5)
    assert policy.victim_key(view, long_idle, 5) < policy.victim_key(view, long_idle, 0)


def alternating(settings: Settings, mib: int = 800) -> Scenario:
    """Two large jobs of which the first computes and the second wants to; its memory is in the host store."""
    scenario = crowd(settings)
    for job in (2, 1):
        scenario.build(job, mib)
        scenario.at(scenario.ms + 2000)
    scenario.want(1)
    return scenario


MEASURED = Usage(out_bytes=800 * MIB, out_us=80_000, in_bytes=800 * MIB, in_us=120_000)


@pytest.mark.parametrize(
    ("usage", "move_us", "asked_ms"), [(Usage(), 838_860, 16_800), (MEASURED, 200_000, 4_001)], ids=["new", "measured"]
)
def test_a_holder_is_asked_when_its_turn_was_worth_the_move(usage: Usage, move_us: int, asked_ms: int) -> None:
    """2 GB/s are assumed until something has been moved: 800 MiB out and back take 0.84 s, 5 % of 16.8 s."""
    scenario = alternating(BOUNDED)
    begin = scenario.ms
    scenario.send(events.Sampled(1, usage))
    assert scenario.want(2) == [WatchIdle(1, move_us)], "no successor: its memory is not there"
    assert not of_kind(scenario.at(begin + asked_ms - 100).last, RequestYield)
    assert RequestYield(1) in scenario.at(begin + asked_ms).last
    assert RequestYield(1) in alternating(FREE).want(2), "the bound can be switched off"


def test_moves_that_are_not_needed_are_not_paid_for() -> None:
    scenario = alternating(replace(FREE, max_move_share_ppm=50_000), mib=400)
    assert not scenario.job(2).offloaded
    assert scenario.want(2) == [NameSuccessor(1, 1, 2), RequestYield(1)]


def test_tq_is_round_robin_with_thirty_seconds() -> None:
    scenario = crowd(replace(FREE, policy="tq", quantum_us=None), mib=4000)
    scenario.build_each(100, 100, 100)
    scenario.want_each(1, 2, 3)
    assert not of_kind(scenario.at(29_999).last, RequestYield)
    assert RequestYield(1) in scenario.at(30_000).last
    scenario.pass_(1, 2, 30_000)
    scenario.want(1)
    assert scenario.machine.view().lanes[1].waiting == (3, 1)


def test_no_quantum_is_taken_from_a_job_for_which_nobody_waits() -> None:
    scenario = crowd(Settings(policy="tq"))
    scenario.build(1, 100)
    scenario.want(1)
    assert scenario.at(100_000).last == []


def test_a_quantum_of_its_own_for_a_device() -> None:
    scenario = crowd(replace(FREE, policy="tq", quantum_us=None))
    scenario.build_each(100, 100)
    scenario.want_each(1, 2)
    assert scenario.send(events.DeviceChanged("host0", 5_000_000, Oversubscribe.AUTO)) == []
    assert scenario.machine.view().devices["host0"].quantum_us == 5_000_000
    assert RequestYield(1) in scenario.at(5_000).last


def test_an_impossible_quantum_and_an_unknown_device_are_refused() -> None:
    scenario = crowd()
    with pytest.raises(ValueError, match="quantum_us is -1"):
        scenario.send(events.DeviceChanged("host0", -1, Oversubscribe.AUTO))
    with pytest.raises(ValueError, match="no device 'host7'; devices: host0"):
        scenario.send(events.DeviceChanged("host7", None, Oversubscribe.AUTO))


def test_on_means_one_lane() -> None:
    scenario = crowd(replace(FREE, policy="pack"), mode=Oversubscribe.ON)
    scenario.start_each(1, 2, estimate=estimate(10, 10))
    assert scenario.job(1).lane == scenario.job(2).lane


def test_an_idle_holder_of_another_lane_is_watched_and_loses_its_memory() -> None:
    scenario = crowd(replace(FREE, policy="pack", quantum_us=60_000_000))
    for job in (1, 2):
        scenario.start(job, job)
    scenario.leave(scenario.ask(1, P, 800))
    scenario.want(1)
    assert scenario.ask(2, P, 700) == [WatchIdle(1, 419_430)], "as long as its memory takes to move"
    following = scenario.release(1, 10, cause=Cause.EARLY)
    assert moved_out(following) == [1]
    scenario.send(events.Offloaded(1))
    assert scenario.job(2).granted.persistent >= 700 * MIB


def test_jobs_of_two_users_that_do_not_fit_together_take_turns() -> None:
    scenario = crowd(FREE)
    scenario.build(1, 800, owner=1)
    scenario.want(1)
    scenario.start(2, 2)
    assert scenario.ask(2, P, 800) == [RequestYield(1)]
    assert moved_out(scenario.release(1, 5)) == [1]
    scenario.want(1)
    scenario.send(events.Offloaded(1))
    scenario.want(2)
    assert scenario.job(2).holder
    assert scenario.machine.view().lanes[2].yield_asked, "and back again"


def test_srtf_moves_a_big_job_out_for_a_small_one() -> None:
    scenario = crowd(replace(FREE, policy="srtf"))
    scenario.start(1, iterations=1000, estimate=estimate(800, 50, iteration_us=10_000))
    scenario.leave(scenario.ask(1, P, 800))
    scenario.want(1)
    scenario.start(2, iterations=5, estimate=estimate(700, 50, iteration_us=1_000))
    assert scenario.ask(2, P, 700) == [RequestYield(1)], "its lane and its memory are the big one's"
    scenario.want(1) if scenario.job(1).waiting else None
    assert moved_out(scenario.release(1, 10)) == [1]
    scenario.send(events.Offloaded(1))
    scenario.want(2)
    assert scenario.job(2).holder
    scenario.want(1)
    assert not scenario.machine.view().lanes[1].yield_asked, "the small one is not interrupted"


def test_fifo_does_not_take_the_turn_for_a_later_job() -> None:
    """The later job waits for the earlier one to end; a probe of the watched holder would let it in."""
    scenario = crowd(replace(FREE, policy="fifo"))
    scenario.build(1, 800)
    scenario.want(1)
    scenario.start(2)
    assert scenario.ask(2, P, 800) == [WatchIdle(1, 419_430)], "but it may have the gaps"
    assert not of_kind(scenario.at(60_000).last, RequestYield)


def test_the_store_is_a_reason_to_wait() -> None:
    scenario = crowd(replace(FREE, host_store=100 * MIB))
    scenario.build(1, 800)
    scenario.at(3000)
    scenario.start(2)
    assert moved_out(scenario.ask(2, P, 800)) == []
    assert "host store" in scenario.why(2) and "100 MiB" in scenario.why(2)
    assert moved_out(scenario.send(events.SettingsChanged(replace(FREE, host_store=900 * MIB)))) == [1]


def test_a_restart_counts_what_left_and_lies_in_no_store() -> None:
    """Memory that a job has made itself moves to its process."""
    scenario = crowd(replace(FREE, host_store=1000 * MIB))
    scenario.send(events.RestartBegan())
    for job in (1, 2):
        scenario.send(events.Submitted(job, JobSpec(0)))
    seat = {"lane": 7, "attached": True}
    scenario.send(adopted(1, **seat, offloaded=True, usage=Usage(persistent_peak=800 * MIB), moved_out=800 * MIB))
    scenario.send(adopted(2, **seat, granted=Memory(800 * MIB), usage=Usage(persistent_peak=800 * MIB)))
    scenario.send(events.RestartEnded())
    scenario.at(3000)
    assert moved_out(scenario.want(1)) == []
    assert "which holds 800 MiB" in scenario.why(1)


def test_kept_pages_of_resident_jobs_are_given_up_first() -> None:
    scenario = crowd(replace(FREE, host_store=1000 * MIB))
    scenario.build_each(400, 400, 400, rest_ms=3000)
    seen = []
    for job in (1, 2, 3, 1, 2, 3):  # each comes back while another one leaves: two of the three stay
        seen += scenario.leave(scenario.want(job))
        assert scenario.job(job).holder, scenario.why(job)
        assert scenario.machine._state.store_kept <= 1000 * MIB
        scenario.release(job, 1)
        scenario.at(scenario.ms + 3000)
    assert any(isinstance(command, DropStore) for command in seen)


def test_a_store_that_cannot_hold_both_is_a_reason_to_wait_and_no_deadlock() -> None:
    scenario = crowd(replace(FREE, host_store=1000 * MIB))
    scenario.build_each(700, 700, rest_ms=3000)
    assert moved_out(scenario.want(1)) == []
    assert "host store" in scenario.why(1)
    assert moved_out(scenario.at(scenario.ms + 20_000).last) == [2], "better beyond the budget than never"


def test_a_victim_that_cannot_be_moved_is_left_alone_for_a_while() -> None:
    scenario = crowd()
    scenario.build_each(450, 450)
    scenario.at(5000)
    scenario.start(3)
    (first,) = moved_out(scenario.ask(3, P, 400))
    (second,) = moved_out(scenario.send(events.OffloadFailed(first, "no host memory")))
    assert {first, second} == {1, 2}
    assert scenario.send(events.OffloadFailed(second, "no host memory")) == []
    assert moved_out(scenario.at(6_001).last), "and tried again later"


def test_a_job_beyond_the_capacity_is_placed_beside_others() -> None:
    scenario = crowd()
    scenario.start(1, estimate=estimate(700, 100))
    scenario.submit(2, estimate=estimate(700, 100))
    assert scenario.job(2).lane == scenario.job(1).lane
    assert scenario.job(2).reserved == Memory(), "nothing is kept for it: others have to leave first"


def test_every_lanes_next_job_fits() -> None:
    """A job of another user that does not fit beside the largest one of this lane waits, with the reason."""
    scenario = crowd()
    scenario.start(1, 1, estimate=estimate(700, 100))
    scenario.submit(2, 2, estimate=estimate(300, 100))
    assert scenario.job(2).phase == "queued"
    assert "waiting for memory" in scenario.why(2)


def test_admission_counts_what_the_store_can_hold() -> None:
    scenario = crowd(replace(FREE, host_store=1400 * MIB))
    scenario.submit_each(1, 2, 3, estimate=estimate(700, 10))
    assert [scenario.job(job).phase for job in (1, 2, 3)] == ["starting", "starting", "queued"]
    assert "host store" in scenario.why(3)


def test_a_short_pause_teaches_patience_and_a_long_one_haste() -> None:
    scenario = crowd()
    scenario.build_each(100, 100)
    job = scenario.machine._state.jobs[1]
    for pause_ms, expected in ((1, 1), (1, 2), (5_000, 1), (5_000, 0), (5_000, -1)):
        scenario.want(1)
        scenario.release(1, 1, cause=Cause.EARLY)
        scenario.at(scenario.ms + pause_ms)
        scenario.want(1)
        scenario.release(1, 1)
        assert job.grace_exponent == expected


def test_lanes_shrink_to_those_who_compute_when_nothing_else_is_left() -> None:
    """One job has much ephemeral, the other much persistent memory: together they fit only in turns."""
    scenario = crowd()
    for job, persistent, ephemeral in ((1, 50, 850), (2, 800, 50)):
        build_and_compute(scenario, job, persistent, ephemeral)
    for job in (1, 2, 1, 2):
        scenario.leave(scenario.want(job))
        assert scenario.job(job).holder, scenario.why(job)
        scenario.release(job, 1)
        scenario.at(scenario.ms + 3000)


@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=6),
    missing=st.integers(1, 1200),
    idle=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_chosen_victims_are_enough_and_none_is_spare(sizes: list[int], missing: int, idle: list[bool]) -> None:
    scenario = crowd(mib=4000)
    for job, mib in enumerate(sizes, start=1):
        scenario.build(job, mib)
    scenario.at(5000)
    for job in range(1, len(sizes) + 1):
        if not idle[job - 1]:
            scenario.want(job)
    scenario.start(99)
    state = scenario.machine._state
    chosen = choose(state, state.devices["host0"], state.jobs[99], missing * MIB)
    total = sum(job.reserved.persistent for job in chosen)
    everybody = candidates(state, state.devices["host0"], state.jobs[99])
    assert total >= missing * MIB or {job.id for job in chosen} == {job.id for job in everybody}
    assert not any(job.holds for job in chosen)
    assert all(total - job.reserved.persistent < missing * MIB for job in chosen), "somebody leaves for nothing"


def test_a_job_that_came_back_at_a_price_stays_until_it_was_worth_it() -> None:
    """A turn that ends early is no reason to move its memory: that would cost more than 5 % of what it computed."""
    scenario = crowd(BOUNDED)
    for job, mib in ((1, 600), (3, 500)):
        scenario.build(job, mib)
        scenario.at(scenario.ms + 3000)
    scenario.leave(scenario.want(1))
    assert scenario.job(1).holder and scenario.job(3).offloaded
    scenario.want(3)
    scenario.want(1)  # it will let go, and touch its memory again at once
    assert not moved_out(scenario.release(1, 100)), "0.1 s for two moves of 0.3 s"
    assert scenario.job(1).holder, "3 comes first, but its memory cannot be there yet"
    scenario.want(1)
    assert moved_out(scenario.release(1, 13_000)) == [1], "that was worth it"


@pytest.mark.parametrize("kind", [P, E])
def test_a_claim_that_needs_the_memory_of_two_holders_is_served(kind: MemoryClass) -> None:
    """Whoever lets go for it stays away until it is served; otherwise the two would take turns at being there."""
    scenario = crowd()
    for job, mib in ((1, 500), (2, 400)):
        scenario.start(job, job)
        scenario.ask(job, kind, mib)
        scenario.want(job)
    scenario.start(3, 3, persistent=900)
    for _ in range(3):
        for job in (1, 2):
            if scenario.job(job).holder:
                scenario.leave(scenario.release(job, 5) + scenario.want(job))
                scenario.at(scenario.ms + 5)
    assert scenario.job(3).granted.persistent >= 900 * MIB, scenario.why(3)


def test_nobody_is_bothered_for_a_claim_that_cannot_be_met_now() -> None:
    scenario = crowd()
    scenario.build(1, 300, owner=1)
    scenario.want(1)
    scenario.start(2, 2, estimate=estimate(500, 0))  # not attached to its memory yet: it cannot be moved
    scenario.machine._state.jobs[2].attached = False
    scenario.start(3, 3)
    commands = scenario.ask(3, P, 900)
    assert commands == [], "even with the turn of 1 there would not be enough"


@pytest.mark.parametrize("usage", [Usage(in_bytes=1, in_us=1 << 62), Usage(out_bytes=1 << 60, out_us=1)])
def test_what_a_job_says_of_its_moves_is_believed_within_reason(usage: Usage) -> None:
    scenario = alternating(BOUNDED)
    scenario.send(events.Sampled(1, usage))
    assert 10_000 < only(scenario.want(2), WatchIdle).grace_us <= 60_000_000


def test_memory_given_back_while_its_share_of_the_lane_was_lent_is_not_asked_for_again() -> None:
    scenario = crowd()
    for job, persistent, ephemeral in ((1, 300, 500), (2, 450, 50)):
        build_and_compute(scenario, job, persistent, ephemeral)
    scenario.send(events.MemoryReturned(1, P, 100 * MIB))
    scenario.leave(scenario.want(1))
    assert scenario.job(1).holder and scenario.job(1).granted.persistent == 100 * MIB


@given(
    sizes=st.lists(st.integers(1, 900), min_size=1, max_size=12),
    store=st.integers(0, 3000),
    largest=st.integers(900, 1500),
)
def test_what_is_admitted_can_always_be_moved(sizes: list[int], store: int, largest: int) -> None:
    """Whatever was placed: each job fits alone, and while any two change places all others fit with the store."""
    scenario = crowd(replace(FREE, host_store=store * MIB), mib=largest)
    for job, mib in enumerate(sizes, start=1):
        scenario.submit(job, estimate=estimate(mib, 10))
    placed = [mib for job, mib in enumerate(sizes, start=1) if scenario.job(job).phase == "starting"]
    waiting = [job for job in range(1, len(sizes) + 1) if scenario.job(job).phase == "queued"]
    if sum(placed) + 10 > largest:
        assert sum(placed) <= store + max(0, largest - 2 * max(placed))
    assert all(scenario.why(job) for job in waiting)
