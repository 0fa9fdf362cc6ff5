"""Memory by measurement: growth, one grower, denial, deadlock, return."""

from __future__ import annotations

from dataclasses import replace

import pytest

from carpool.core import events
from carpool.core.commands import (
    CloseLane,
    Command,
    DenyMemory,
    GrantMemory,
    GrantTurn,
    Offload,
    OpenLane,
    RequestYield,
    ResizeLane,
)
from carpool.core.model import MIB, Cause, JobSpec, Memory, MemoryClass, Oversubscribe
from tests.core.scenario import EVERY_BOUNDARY, E, P, Scenario, estimate, one_device, only
from tests.core.seats import Program
from tests.core.world import World


def granted(scenario: Scenario, job: int) -> tuple[int, int]:
    memory = scenario.job(job).granted
    return memory.persistent // MIB, memory.ephemeral // MIB


def grows(commands: list[Command]) -> list[int]:
    return [command.job for command in commands if isinstance(command, GrantMemory)]


def test_a_newcomer_starts_with_nothing_and_grows_with_a_little_to_spare(scenario: Scenario) -> None:
    assert scenario.start(1)[0] == OpenLane(1, "host0", 0, 0)
    assert granted(scenario, 1) == (0, 0)
    # 100 + 1000/64 = 115.6, rounded up to 4 MiB; and 30 + 25 %.
    persistent, ephemeral = 116 * MIB, 40 * MIB
    assert scenario.ask(1, P, 100) == [GrantMemory(1, Memory(persistent), P)]
    enlarged = [ResizeLane(1, ephemeral), GrantMemory(1, Memory(persistent, ephemeral), E)]
    assert scenario.ask(1, E, 30) == enlarged, "the lane is enlarged before the limit is raised"
    assert scenario.ask(1, P, 100) == [GrantMemory(1, Memory(persistent, ephemeral), P)], "it is answered again"


def test_a_holder_whose_request_is_granted_at_once_keeps_its_turn() -> None:
    """Others wait; that is no reason to take the turn of somebody who does not wait for memory any more."""
    scenario = one_device(quantum_us=50_000)
    for job in (1, 2):
        scenario.start_and_want(job, estimate=estimate(10, 100))
    assert scenario.ask(1, E, 50) == [GrantMemory(1, Memory(0, 64 * MIB), E)]


def test_a_holder_that_waits_for_memory_gives_its_turn_to_others(scenario: Scenario) -> None:
    for job in (1, 2, 3):
        scenario.start_and_want(job, estimate=estimate(300, 10), persistent=300)
    assert scenario.ask(1, E, 300) == [RequestYield(1, forced=True)]


def test_scarce_memory_is_granted_exactly(scenario: Scenario) -> None:
    scenario.start(1, persistent=800, ephemeral=183)
    p, e = granted(scenario, 1)
    assert e == 184 and p + e <= 1000  # rounded to the step only
    scenario.exit(1)
    scenario.start(2, persistent=1000)
    assert granted(scenario, 2) == (1000, 0)


def test_only_what_would_not_fit_alone_is_denied(scenario: Scenario) -> None:
    """Optional requests never wait: they are denied, too."""
    scenario.start(1, persistent=400)
    command = only(scenario.ask(1, E, 700), DenyMemory)
    assert command.memory_class is E
    assert "host0 holds 1000 MiB" in command.reason.text
    assert scenario.machine.explain(1) is None
    scenario.ask(1, E, 50)
    assert isinstance(scenario.ask(1, P, 990, optional=True)[0], DenyMemory)
    assert [command.answers for command in scenario.ask(1, P, 900, optional=True)] == [P]  # type: ignore[union-attr]


def test_one_unknown_job_grows_at_a_time(scenario: Scenario) -> None:
    scenario.start_each(1, 2)
    scenario.ask(1, P, 10)
    assert scenario.ask(2, P, 10) == []
    assert scenario.why(2) == "waiting for 10 MiB of persistent memory: job 1 is being measured on host0"
    scenario.want(1)
    commands = scenario.send(events.TurnReleased(1, Cause.BOUNDARY, scenario.usage(1, 9, 3)))
    assert 2 in grows(commands)
    assert scenario.job(1).measured and scenario.machine.view().devices["host0"].grower == 2


def test_a_loop_whose_iterations_nobody_sees_is_measured_by_its_quiet(scenario: Scenario) -> None:
    """Inference and pure tensor code finish no iterations; others must be able to grow all the same."""
    scenario.start_each(1, 2)
    scenario.ask(1, P, 10)
    scenario.ask(2, P, 10)
    scenario.want(1)
    scenario.send(events.Sampled(1, scenario.usage(1, 1_500)))
    scenario.ask(1, P, 20)  # it still grows
    scenario.send(events.Sampled(1, scenario.usage(1, 1_500)))
    assert not scenario.job(1).measured
    commands = scenario.send(events.Sampled(1, scenario.usage(1, 600)))
    assert scenario.job(1).measured
    assert 2 in grows(commands)


def test_the_next_one_grows_when_the_grower_ends_leaves_or_sleeps(scenario: Scenario) -> None:
    scenario.start_each(1, 2, 3, 4, persistent=10)
    assert grows(scenario.exit(1, code=1)) == [2]
    assert 3 in grows(scenario.send(events.Detached(2)))
    assert grows(scenario.exactly_at(10_000)) == [4]


def test_a_grower_that_nobody_can_make_room_for_lets_a_holder_grow(scenario: Scenario) -> None:
    """Found by the worlds: the holder is pinned, so the grower's memory comes only when the holder goes on."""
    scenario.start(1)
    scenario.send(events.TraitsSeen(1, alone=None, immovable="shared"))
    scenario.ask(1, P, 600)
    scenario.start(2, persistent=600)
    scenario.at(10_000)  # job 1 sleeps: job 2 is the grower
    assert scenario.machine.view().devices["host0"].grower == 2
    commands = scenario.ask(1, E, 7) + scenario.at(30_000).last
    assert 1 in grows(commands)
    assert scenario.why(2).startswith("waiting for memory: needs 600 MiB of persistent memory, free ")


def test_two_newcomers_do_not_take_turns_at_growing_while_what_is_free_is_kept_for_another() -> None:
    """Found by a review: neither gets anything, and the core went from one to the other for ever."""
    scenario = one_device(oversubscribe=Oversubscribe.ON)
    for job, known in ((1, estimate(640, 60)), (2, estimate(100, 0))):
        scenario.start(job, owner=job, estimate=known)
    for job in (3, 4):
        scenario.start(job, owner=job)
    for job in (1, 2):
        scenario.send(events.TraitsSeen(job, None, "pinned"))
        scenario.want(job)
    for job, kind, mib in ((1, P, 640), (1, E, 60), (2, P, 100)):
        scenario.ask(job, kind, mib)
    scenario.ask(2, P, 350, keeps_turn=True)
    for job in (3, 4):
        scenario.ask(job, P, 100)
    scenario.ask(1, P, 930)
    assert all(scenario.job(job).granted.persistent >= 100 * MIB for job in (3, 4))


def test_known_jobs_need_not_wait_for_the_grower(scenario: Scenario) -> None:
    scenario.start(1)
    scenario.start(2, estimate=estimate(100, 100))
    scenario.ask(1, P, 10)
    assert scenario.ask(2, P, 100) != []
    assert scenario.ask(2, P, 200) != []  # more than its estimate, but free


def test_an_estimate_is_kept_until_it_has_been_measured(scenario: Scenario) -> None:
    scenario.start(1, estimate=estimate(300, 200, "hint"))
    assert scenario.machine.view().devices["host0"].free == 500 * MIB
    scenario.ask(1, P, 100)
    scenario.want(1)
    scenario.ask(1, E, 50)
    commands = scenario.send(events.Sampled(1, scenario.usage(1, 30, 3)))
    lane = scenario.machine.view().lanes[1].size
    assert commands == [ResizeLane(1, lane)] and lane < 100 * MIB
    assert scenario.machine.view().devices["host0"].free == 1000 * MIB - scenario.job(1).granted.total
    scenario.exit(1)
    scenario.start(2, estimate=estimate(10, 900, "hint"), persistent=800)
    assert granted(scenario, 2)[0] >= 800, "a wrong estimate is no reason for out of memory"


def test_figure_6_in_the_modelled_world_both_finish() -> None:
    """Side by side, in lanes of their own, and in one lane; with and without (wrong) estimates."""
    wrong = estimate(10, 100)
    for policy in ("pack", "fair"):
        for guess in (None, wrong):
            world = World(replace(EVERY_BOUNDARY, policy=policy), {"host0": 1000 * MIB})
            for _ in range(2):
                world.submit(JobSpec(0, estimate=guess), Program(50 * MIB, (250 * MIB, 300 * MIB), 5))
            world.finish()
            assert [end.outcome for end in world.ended.values()] == ["succeeded", "succeeded"], (policy, guess)


def test_while_a_job_waits_for_memory_nobody_is_placed(scenario: Scenario) -> None:
    scenario.start(1, estimate=estimate(600, 10), persistent=600)
    scenario.start(2)
    assert scenario.ask(2, P, 500) == []
    assert "needs 500 MiB of persistent memory, free" in scenario.why(2)
    assert scenario.submit(3) == []
    assert scenario.why(3) == "job 2 waits for memory of host0, and comes first"
    commands = scenario.exit(1)
    assert [type(c).__name__ for c in commands if getattr(c, "job", 0) in (2, 3)] == ["GrantMemory", "StartJob"]


def test_salus_figure_6_two_jobs_that_grow_in_mid_iteration(scenario: Scenario) -> None:
    """Each needs 750 of 1000 in its iteration and gets there in steps; together they would block each other."""
    scenario.start_each(1, 2, estimate=estimate(100, 200))
    for job in (1, 2):
        scenario.ask(job, P, 100)
        scenario.ask(job, E, 190)
    scenario.want(1)
    scenario.ask(1, P, 380)
    assert scenario.ask(2, P, 380) != []  # 380 + 380 + one lane of 200 nearly fill the device
    assert scenario.ask(1, P, 550) == []
    commands = scenario.ask(2, P, 550)
    assert commands == [Offload(2)], "the one that came last makes room"
    commands = scenario.send(events.Offloaded(2))
    assert GrantMemory(2, Memory()) in commands
    assert any(isinstance(c, GrantMemory) and c.job == 1 and c.answers is P for c in commands)
    assert "moved to the host store" in scenario.why(2)
    assert scenario.submit(3, estimate=estimate(10, 10)) == []  # nobody overtakes a job that was moved out
    commands = scenario.exit(1)
    back = next(c for c in commands if isinstance(c, GrantMemory) and c.job == 2)
    assert back.answers is P and back.memory.persistent >= 550 * MIB
    assert scenario.want(2) == [GrantTurn(1, 2)]
    scenario.exit(2)
    assert scenario.job(2).outcome == "succeeded"


def test_a_victim_that_holds_the_turn_lets_go_first(scenario: Scenario) -> None:
    scenario.start_each(1, 2, estimate=estimate(400, 100), persistent=400, ephemeral=100)
    scenario.want(2)
    scenario.ask(1, P, 600)
    assert scenario.ask(2, P, 600) == [RequestYield(2, forced=True)]
    assert scenario.release(2, cause=Cause.FORCED) == [Offload(2)]


def two_that_sleep(scenario: Scenario) -> None:
    """The memory of the second is moved out for the first."""
    scenario.start_each(1, 2, estimate=estimate(400, 100), persistent=400)
    scenario.at(20_000)
    assert scenario.ask(1, P, 700) == [Offload(2)], "sleepers make room, even if nobody else waits"


def test_an_offloaded_job_gets_its_memory_back_before_its_turn(scenario: Scenario) -> None:
    two_that_sleep(scenario)
    scenario.send(events.Offloaded(2))
    assert scenario.want(2) == []
    commands = scenario.send(events.MemoryReturned(1, P, 300 * MIB))
    assert [type(c).__name__ for c in commands] == ["GrantMemory", "GrantMemory", "GrantTurn"]
    assert granted(scenario, 2)[0] >= 400


def test_a_job_alone_on_its_lane_is_asked_whether_it_sleeps(scenario: Scenario) -> None:
    """A notebook keeps its turn, because nobody of its lane wants it; but its memory is needed."""
    scenario.start_and_want(1, estimate=estimate(800, 100), persistent=800)
    scenario.start(2, persistent=500)
    assert scenario.exactly_at(10_000) == [RequestYield(1)]
    scenario.release(1, cause=Cause.EARLY)
    assert scenario.exactly_at(20_000) == [Offload(1)]


def test_a_lane_shrinks_when_its_largest_job_leaves_and_closes_with_the_last(scenario: Scenario) -> None:
    scenario.start(1, estimate=estimate(10, 100))
    scenario.start(2, estimate=estimate(10, 300))
    assert scenario.machine.view().lanes[1].size == 300 * MIB
    assert ResizeLane(1, 100 * MIB) in scenario.exit(2)
    assert scenario.exit(1)[-1] == CloseLane(1)


def test_returned_memory_is_free_at_once(scenario: Scenario) -> None:
    scenario.start(1, persistent=500)
    assert scenario.send(events.MemoryReturned(1, P, 100 * MIB)) == [GrantMemory(1, Memory(100 * MIB))]
    assert scenario.machine.view().devices["host0"].free == 900 * MIB


def test_a_cancelled_job_does_not_wait_for_memory_and_after_the_end_none_is_given(scenario: Scenario) -> None:
    scenario.start(1, estimate=estimate(800, 10), persistent=800)
    scenario.start(2, persistent=500)
    commands = scenario.send(events.CancelRequested(2))
    assert [c for c in commands if isinstance(c, DenyMemory) and c.job == 2]
    assert only(scenario.ask(2, P, 500), DenyMemory)
    scenario.exit(1)
    assert scenario.ask(1, P, 10) == []
    assert scenario.send(events.Offloaded(1)) == []


def withdraw(scenario: Scenario, job: int, kind: MemoryClass) -> list[object]:
    return list(scenario.send(events.RequestWithdrawn(job, kind)))


def test_a_request_that_is_withdrawn_keeps_nobody_waiting(scenario: Scenario) -> None:
    """Neither the job's own request of the other class, nor whoever comes behind it."""
    scenario.start(1, estimate=estimate(800, 10), persistent=800)
    scenario.start(2)
    assert scenario.ask(2, P, 500) == []
    assert scenario.why(2)
    answer = only(withdraw(scenario, 2, P), DenyMemory)
    assert (answer.job, answer.memory_class, answer.reason.code) == (2, P, "withdrawn")
    (command, *_) = [c for c in scenario.ask(2, E, 50) if isinstance(c, GrantMemory)]
    assert command.answers is E and granted(scenario, 2)[1] >= 50
    assert any(isinstance(c, GrantTurn) for c in scenario.want(2))
    scenario.ask(2, P, 500)
    scenario.ask(2, E, 400)
    assert isinstance(withdraw(scenario, 2, P)[0], DenyMemory)
    freed = [c.answers for c in scenario.exit(1) if isinstance(c, GrantMemory) and c.job == 2]
    assert freed == [E], "the other class goes on waiting"


def test_memory_is_no_longer_kept_for_a_request_that_is_withdrawn(scenario: Scenario) -> None:
    """Others had begun to leave for it."""
    two_that_sleep(scenario)
    withdraw(scenario, 1, P)
    scenario.send(events.Offloaded(2))
    assert granted(scenario, 1)[0] < 700
    assert any(isinstance(c, GrantTurn) and c.job == 2 for c in scenario.want(2)), "it comes back at once"


@pytest.mark.parametrize("kind", [P, E])
def test_a_withdrawal_that_crosses_the_answer_changes_nothing(scenario: Scenario, kind: MemoryClass) -> None:
    scenario.start(1, persistent=100)
    before = scenario.machine.view()
    assert withdraw(scenario, 1, kind) == []
    assert scenario.machine.view() == before
    scenario.exit(1)
    assert withdraw(scenario, 1, kind) == []


def test_who_withdraws_its_request_lets_another_grow(scenario: Scenario) -> None:
    scenario.start(3, estimate=estimate(300, 0), persistent=300)
    scenario.start_each(1, 2)
    scenario.ask(1, P, 100)
    scenario.ask(1, P, 900)
    scenario.ask(2, P, 200)
    assert "job 1 is being measured" in scenario.why(2)
    withdraw(scenario, 1, P)
    assert granted(scenario, 2)[0] >= 200


def test_what_was_granted_to_spare_and_is_given_back_refuses_nothing() -> None:
    """Where a job has nothing to spare, because others have the memory, its limits are what it needs from the start."""
    scenario = one_device(128)
    scenario.start(1, persistent=39)
    assert granted(scenario, 1) == (44, 0)
    assert only(scenario.ask(1, E, 88), DenyMemory).reason.code == "too_large"
    scenario.send(events.MemoryReturned(1, P, 39 * MIB))
    scenario.ask(1, E, 88)
    assert granted(scenario, 1) == (39, 88)
