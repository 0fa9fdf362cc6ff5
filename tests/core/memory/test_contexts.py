"""Room for the context of a job that is started: made before, kept until it has come, learned from what came."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.core import events
from carpool.core.commands import Command, DenyMemory, DenyTurn, RequestYield, RetryJob
from carpool.core.model import MIB, Attempt, DeviceSpec, JobPhase, Oversubscribe, alone_after
from tests.core.scenario import E, P, Scenario, estimate, moved_out, of_kind, only, started
from tests.core.service_steps import demand, worker

CONTEXT = 100


def on_gpu(mib: int = 1000, oversubscribe: Oversubscribe = Oversubscribe.AUTO) -> Scenario:
    scenario = Scenario()
    spec = DeviceSpec("gpu0", mib * MIB, oversubscribe=oversubscribe, checkpoint=True, context=CONTEXT * MIB)
    scenario.send(events.DeviceAdded(spec))
    return scenario


@pytest.fixture
def scenario() -> Scenario:
    return on_gpu()


def telemetry(scenario: Scenario, beside: int, spare: int = 0) -> list[Command]:
    """What is in use beside grants, in MiB."""
    return scenario.send(events.ForeignMemory("gpu0", beside * MIB, 0, spare * MIB))


def resting(scenario: Scenario, job: int, mib: int, **spec: Any) -> list[Command]:
    """It has so much of its own, and no turn."""
    commands = scenario.start(job, **spec)
    scenario.ask(job, P, mib)
    return commands


def compute(scenario: Scenario, job: int, iterations: int = 20) -> None:
    """So many that its memory counts as measured."""
    scenario.want(job)
    scenario.release(job, ms=5, iterations=iterations, persistent_live=scenario.job(job).granted.persistent)


def free(scenario: Scenario) -> int:
    return scenario.machine.view().devices["gpu0"].free // MIB


def kept(scenario: Scenario) -> int:
    """MiB of the capacity that cannot be granted."""
    return scenario.machine.view().devices["gpu0"].foreign // MIB


def denied(commands: list[Command]) -> list[int]:
    return [command.job for command in of_kind(commands, DenyMemory)]


def stays(scenario: Scenario, job: int) -> bool:
    """Whether the submission of a job starts nothing and moves nobody."""
    commands = scenario.submit(job)
    return (started(commands), moved_out(commands)) == ([], [])


def both_full(scenario: Scenario) -> None:
    """Two jobs have 424 MiB or a little more; their contexts have come, and lie in the capacity."""
    for job in (1, 2):
        resting(scenario, job, 10)
        telemetry(scenario, job * 50)
        compute(scenario, job)
    for job in (1, 2):
        scenario.ask(job, P, 424)
    assert kept(scenario) == 100 and free(scenario) < 56
    scenario.at(10_000)  # they have rested for longer than moving them takes


def test_a_job_that_finds_its_device_empty_is_promised_what_there_is_beside_its_context(scenario: Scenario) -> None:
    scenario.start(1, estimate=estimate(950, 0))
    scenario.at(10)
    assert scenario.job(1).reserved.total == 900 * MIB, "nothing of it is taken back when its context is due"


@pytest.mark.parametrize("spare", [0, 150])
def test_a_context_that_is_due_is_granted_to_nobody(scenario: Scenario, spare: int) -> None:
    """What is free beside the capacity is taken first."""
    telemetry(scenario, 0, spare=spare)
    scenario.start(1)
    assert kept(scenario) == max(0, CONTEXT - spare)
    scenario.start(2)
    assert kept(scenario) == 2 * CONTEXT - spare


@pytest.mark.parametrize(
    ("seen", "expected"),
    [([70, 120], [CONTEXT, 120, 120]), ([64], [CONTEXT, 64])],
    ids=["it is larger than was expected", "what does not come is given back"],
)
def test_it_is_kept_until_it_has_come_or_the_job_computes(
    scenario: Scenario, seen: list[int], expected: list[int]
) -> None:
    """Of 100, 70 are in use and 30 to come."""
    scenario.start(1)
    found = []
    for beside in seen:
        telemetry(scenario, beside)
        found.append(kept(scenario))
    scenario.ask(1, P, 100)
    compute(scenario, 1)
    assert [*found, kept(scenario)] == expected


def services(scenario: Scenario, *jobs: int) -> None:
    """Of each 70 MiB of its context have come."""
    for number, job in enumerate(jobs, 1):
        worker(scenario, job, mib=10)
        telemetry(scenario, 70 * number)


def two_services(scenario: Scenario) -> None:
    """Neither has had a turn, and the weights of the first lie where 30 MiB more of each context would."""
    services(scenario, 1, 2)
    scenario.want(1, demand=demand("vgg", 830))
    scenario.want(2, demand=demand("gpt", 200))


def test_a_service_has_loaded_its_modules_after_a_few_turns(scenario: Scenario) -> None:
    services(scenario, 1)
    for _ in range(3):
        assert kept(scenario) == 100
        scenario.want(1, demand=demand("gpt", 200))
        scenario.release(1, iterations=0)
    assert kept(scenario) == 70


def test_services_do_not_wait_for_what_is_kept_for_their_contexts(scenario: Scenario) -> None:
    two_services(scenario)
    assert kept(scenario) == 200 and not scenario.job(1).holder
    scenario.at(20_000)
    assert kept(scenario) == 140 and scenario.job(1).holder


def test_who_has_just_started_does_not_prolong_the_wait_for_others(scenario: Scenario) -> None:
    two_services(scenario)
    scenario.at(9_000)
    scenario.start(3)
    scenario.at(12_000)
    assert scenario.machine._state.devices["gpu0"].contexts_due == 100 * MIB, "that of the last one"


def test_what_is_kept_for_a_context_that_nobody_has_seen_stays(scenario: Scenario) -> None:
    """Its job may come to use the device any moment, and cannot wait there."""
    services(scenario, 1)
    scenario.start(2)
    scenario.want(1, demand=demand("vgg", 850))
    scenario.at(60_000)
    assert kept(scenario) == 170 and not scenario.job(1).holder


def test_what_has_not_come_of_a_context_gives_way_where_memory_cannot_be_moved(scenario: Scenario) -> None:
    """Of the first job nothing can be moved, and both need more."""
    for job in (1, 2):
        scenario.start(job)
        telemetry(scenario, 70 * job)
    scenario.send(events.TraitsSeen(1, immovable="shared"))
    scenario.ask(1, P, 400)
    scenario.ask(2, P, 420)
    assert scenario.job(2).granted.total == 0
    scenario.at(20_000)
    assert scenario.job(2).granted.total >= 420 * MIB


def test_without_telemetry_it_is_kept_as_long_as_the_job_is_there(scenario: Scenario) -> None:
    resting(scenario, 1, 100)
    compute(scenario, 1)
    assert kept(scenario) == CONTEXT
    scenario.exit(1)
    assert kept(scenario) == 0


def test_a_job_is_started_when_another_one_has_moved_out(scenario: Scenario) -> None:
    both_full(scenario)
    commands = scenario.submit(3)
    (leaver,) = moved_out(commands)
    assert started(commands) == [] and "other jobs have to move out" in scenario.why(3)
    assert scenario.job(3 - leaver).granted.persistent, "one is enough"
    scenario.want(leaver)
    commands = scenario.send(events.Offloaded(leaver))
    assert started(commands) == [3]
    assert not scenario.job(leaver).holder, "what it left is kept for the context"
    assert kept(scenario) == 100 + 56, "an eighth more than what job 2 showed"


@pytest.mark.parametrize("starts", [True, False], ids=["when the other has ended", "when the other does not come"])
def test_whoever_left_comes_back_when_there_is_room(scenario: Scenario, starts: bool) -> None:
    both_full(scenario)
    (leaver,) = moved_out(scenario.submit(3))
    if starts:
        scenario.send(events.Offloaded(leaver))
        scenario.want(leaver)
        scenario.exit(3)
    else:
        scenario.send(events.CancelRequested(3))
        assert scenario.machine._state.devices["gpu0"].expected is None and kept(scenario) == 100
        scenario.want(leaver)
        scenario.send(events.Offloaded(leaver))
    assert scenario.job(leaver).holder and scenario.job(leaver).granted.persistent


def test_a_holder_is_asked_for_its_turn(scenario: Scenario) -> None:
    both_full(scenario)
    scenario.want(1)
    assert moved_out(scenario.submit(3)) == [2]
    assert RequestYield(1) in scenario.send(events.OffloadFailed(2, "no room in the host store"))
    commands = scenario.release(1, ms=5)
    assert moved_out(commands) == [1] and started(scenario.send(events.Offloaded(1))) == [3]


def test_a_job_that_would_not_come_back_stays(scenario: Scenario) -> None:
    """A job that suspends its processes needs no room."""
    resting(scenario, 1, 850)
    assert stays(scenario, 2)
    assert "no room for one more context (100 MiB) beside what job 1 needs" in scenario.why(2)
    assert started(scenario.submit(3, checkpoint=True)) == [3]
    assert kept(scenario) == CONTEXT
    scenario.exit(3)
    assert started(scenario.exit(1)) == [2]


def test_a_job_that_is_in_the_host_store_is_thought_of(scenario: Scenario) -> None:
    """There is room for the context at the moment; but what has left would find none ever again."""
    resting(scenario, 1, 750)
    resting(scenario, 2, 40)
    scenario.send(events.ForeignMemory("gpu0", 500 * MIB, 500 * MIB))
    scenario.send(events.Offloaded(1))
    scenario.send(events.ForeignMemory("gpu0", 0, 0))
    assert started(scenario.submit(3)) == []
    assert "no room" in scenario.why(3)


def test_nobody_is_moved_where_jobs_do_not_displace_each_other() -> None:
    scenario = on_gpu(oversubscribe=Oversubscribe.OFF)
    for job in (1, 2):
        resting(scenario, job, 390, estimate=estimate(390, 0))
    assert stays(scenario, 3)
    assert started(scenario.exit(2)) == [3]


def test_what_cannot_be_moved_is_not_waited_for(scenario: Scenario) -> None:
    for job in (1, 2):
        resting(scenario, job, 350, estimate=estimate(350, 0))
        scenario.send(events.TraitsSeen(job, immovable="pinned", alone=None))
    telemetry(scenario, 250)
    assert stays(scenario, 3)
    assert scenario.machine._state.devices["gpu0"].expected is None


@pytest.mark.parametrize(("measured", "fits"), [(850, True), (950, False)])
def test_a_suspended_job_is_thought_of(scenario: Scenario, measured: int, fits: bool) -> None:
    """What was measured has to be free for its next turn."""
    scenario.submit(1, checkpoint=True)
    scenario.began(1)
    scenario.want(1)
    scenario.release(1, ms=5, persistent_live=measured * MIB)
    assert started(scenario.submit(2)) == [2] * fits
    assert fits or "no room for one more context (100 MiB) beside what job 1 needs" in scenario.why(2)


def test_how_large_a_context_is_shows_a_job_that_comes_alone(scenario: Scenario) -> None:
    for job in (1, 2):
        resting(scenario, job, 10)
        telemetry(scenario, job * 200)
        compute(scenario, job)
    scenario.start(3)
    assert kept(scenario) == 400 + 225, "an eighth more than that of the second one; the first came with Carpool's own"


def test_two_that_come_together_show_nothing(scenario: Scenario) -> None:
    for job in (1, 2):
        resting(scenario, job, 10)
    telemetry(scenario, 260)
    for job in (1, 2):
        compute(scenario, job)
    scenario.start(3)
    assert kept(scenario) == 260 + CONTEXT


def test_what_other_programs_take_is_no_context(scenario: Scenario) -> None:
    scenario.start(1)
    scenario.send(events.ForeignMemory("gpu0", 200 * MIB, 200 * MIB))
    assert scenario.machine._state.devices["gpu0"].contexts_due == CONTEXT * MIB


def test_who_found_no_room_shares_the_device_when_it_is_started_again(scenario: Scenario) -> None:
    resting(scenario, 1, 100)
    scenario.start(2)
    commands = scenario.send(events.ProcessExited(2, 1, None, out_of_memory="CUDA error: out of memory"))
    assert started(commands) == [2] and not scenario.machine._state.jobs[2].exclusive
    scenario.began(2)
    commands = scenario.send(events.ProcessExited(2, 1, None, out_of_memory="CUDA error: out of memory"))
    assert started(commands) == [] and scenario.machine._state.jobs[2].exclusive, "twice is enough"
    assert started(scenario.exit(1)) == [2]


def test_who_had_memory_has_the_device_to_itself(scenario: Scenario) -> None:
    resting(scenario, 1, 100)
    resting(scenario, 2, 100)
    scenario.send(events.ProcessExited(2, 1, None, out_of_memory="CUDA out of memory"))
    assert scenario.machine._state.jobs[2].exclusive


@pytest.mark.parametrize(
    ("before_memory", "alone"),
    [([], False), ([True], False), ([False], True), ([True, True], True), ([True, False], True)],
)
def test_after_which_attempts_a_job_has_its_device_to_itself(before_memory: list[bool], alone: bool) -> None:
    past = [Attempt("", "gpu0", True, 0, before) for before in before_memory]
    assert alone_after([Attempt("exit code 1"), *past]) is alone


@pytest.mark.parametrize("came", [True, False])
def test_of_a_process_that_never_came_nobody_knows_what_it_had(scenario: Scenario, came: bool) -> None:
    """It is gated by nothing, and has allocated for itself."""
    scenario.submit(1)
    scenario.send(events.ProcessStarted(1))
    if came:
        scenario.send(events.Attached(1))
    ended = events.ProcessExited(1, 1, None, "it said so")
    assert only(scenario.send(ended), RetryJob).past.before_memory == came


def test_an_estimate_has_to_fit_beside_the_context(scenario: Scenario) -> None:
    resting(scenario, 1, 700)
    telemetry(scenario, 100)
    compute(scenario, 1)
    assert started(scenario.submit(2, estimate=estimate(150, 0))) == [2], "it takes turns with job 1"
    assert not scenario.job(2).granted.persistent


def two_that_grow(persistent: int, spare: int = 0) -> Scenario:
    """Two jobs on 500 MiB, and so many beside them, need more than their contexts leave."""
    scenario = on_gpu(500)
    telemetry(scenario, 0, spare=spare)
    scenario.start_each(1, 2)
    scenario.ask(1, P, persistent)
    scenario.ask(2, P, persistent + 10)
    return scenario


@pytest.mark.parametrize(("persistent", "spare"), [(350, 0), (420, 100)])
def test_where_contexts_leave_nobody_enough_the_last_one_fails(persistent: int, spare: int) -> None:
    """Neither would find what it needs: it is started again when it has the device to itself.

    With what is spare either context alone lies beside the capacity; both together take 100 of 500 MiB.
    """
    assert denied(two_that_grow(persistent, spare).at(60_000).last) == [2]


def test_a_context_has_come_where_others_are_seen_and_its_job_uses_the_device() -> None:
    scenario = two_that_grow(420, spare=100)
    telemetry(scenario, 0, spare=60)
    assert kept(scenario) == 100, "of the two, 40 in use and 160 to come"
    scenario.at(60_000)
    assert kept(scenario) == 0 and scenario.job(1).granted.total >= 420 * MIB


def test_who_has_only_a_context_fails_where_it_is_in_the_way_of_memory_that_stays() -> None:
    """Job 1 needs 20 more, and job 2 waits for its first memory."""
    scenario = on_gpu(500)
    scenario.start_each(1, 2)
    scenario.ask(1, P, 300)
    scenario.send(events.TraitsSeen(1, alone="it is gated by halves"))
    scenario.ask(2, P, 60)
    scenario.ask(1, P, 320)
    scenario.at(60_000)
    assert denied(scenario.last) == [2]
    scenario.exit(2, code=1)
    assert scenario.job(1).granted.total >= 320 * MIB


def test_a_service_that_lacks_memory_gives_its_weights_up_for_others() -> None:
    """It has its turn and no memory; the other jobs are through before the weights come back."""
    scenario = on_gpu(600)
    for job in (1, 2):
        worker(scenario, job, mib=0)
    scenario.start(3)
    scenario.want(1, demand=demand(mib=250))
    scenario.ask(2, E, 60)
    scenario.ask(3, P, 60)
    assert scenario.ask(1, E, 60) == [RequestYield(1, forced=True)]
    scenario.release(1)
    assert all(scenario.job(job).granted.total >= 60 * MIB for job in (2, 3))


def test_a_service_is_denied_weights_that_contexts_leave_no_room_for() -> None:
    """Job 2 could go on, but comes after job 1 in their lane; job 3 does not fit beside the contexts either."""
    scenario = on_gpu()
    scenario.start(3)
    for job in (1, 2):
        worker(scenario, job, mib=10)
    scenario.want(1, demand=demand("vgg", 850))
    scenario.want(2, demand=demand("gpt", 200))
    scenario.ask(3, P, 790)
    scenario.at(60_000)
    assert denied(scenario.last) == [3]
    assert only(scenario.exit(3, code=1), DenyTurn).job == 1
    assert scenario.job(2).holder


@given(steps=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 400)), max_size=14))
def test_no_job_is_started_without_room(steps: list[tuple[int, int]]) -> None:
    """Whatever jobs and telemetry do: the books leave each newcomer its context, and nobody waits for good for that."""
    scenario, next_job = on_gpu(), 1
    for kind, mib in steps:
        if kind == 0 and next_job < 6:
            commands = scenario.submit(next_job)
            next_job += 1
        elif kind == 1:
            commands = telemetry(scenario, mib)
        else:
            attached = [n for n in range(1, next_job) if scenario.job(n).phase is JobPhase.RUNNING]
            commands = scenario.ask(attached[mib % len(attached)], P, mib) if attached else []
        while commands:
            device = scenario.machine._state.devices["gpu0"]
            others = [job for job in started(commands) if len(device.jobs) > 1]
            assert not others or device.promised <= device.left()
            following = [scenario.send(events.Offloaded(job)) for job in moved_out(commands)]
            for job in started(commands):
                following += [scenario.send(events.ProcessStarted(job)), scenario.send(events.Attached(job))]
            commands = [command for each in following for command in each]
    for job in range(1, next_job):
        if scenario.job(job).phase is not JobPhase.ENDED:
            scenario.send(events.CancelRequested(job))
            scenario.exit(job) if scenario.job(job).phase is not JobPhase.ENDED else None
    assert scenario.machine._state.devices["gpu0"].contexts_due == 0


def test_what_comes_before_a_job_has_attached_is_not_its_context(scenario: Scenario) -> None:
    """Carpool's own context comes with the first memory.  A newcomer once found no room for its context after that."""
    resting(scenario, 1, 10)
    assert started(scenario.submit(2)) == [2]
    telemetry(scenario, CONTEXT + 50)
    assert kept(scenario) == CONTEXT + 50 + CONTEXT
    scenario.began(2)
    telemetry(scenario, CONTEXT + 50 + CONTEXT)
    assert kept(scenario) == CONTEXT + 50 + CONTEXT
