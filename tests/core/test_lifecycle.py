"""From submission to end: outcomes, cancelling, starts that fail, the table of transitions."""

from __future__ import annotations

import pytest

from carpool.core import events
from carpool.core.commands import DenyMemory, EndJob, GrantMemory, SignalJob
from carpool.core.events import IllegalTransition, InvariantError
from carpool.core.lifecycle.legality import LATE, TABLE, mermaid
from carpool.core.model import MIB, JobPhase, Memory, Outcome, Oversubscribe, Settings, Usage
from tests.core.scenario import P, Scenario, estimate, moved_out, one_device, only


@pytest.mark.parametrize(
    ("code", "signal", "outcome", "text"),
    [
        (0, None, Outcome.SUCCEEDED, ""),
        (3, None, Outcome.FAILED, "exited with code 3"),
        (None, 9, Outcome.FAILED, "killed by signal 9"),
        (None, None, Outcome.LOST, "its supervisor vanished; how the job ended is unknown"),
    ],
)
def test_outcomes(scenario: Scenario, code: int | None, signal: int | None, outcome: Outcome, text: str) -> None:
    scenario.start(1)
    command = only(scenario.exit(1, code, signal), EndJob)
    assert (command.outcome, command.code, command.signal) == (outcome, code, signal)
    assert scenario.why(1) == text


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.TIMED_OUT])
def test_what_its_launcher_has_ended_is_not_tried_again(scenario: Scenario, outcome: Outcome) -> None:
    scenario.start(1, retries=3)
    exited = events.ProcessExited(1, signal=15, note="slurm 12 has ended it", stopped=outcome)
    command = only(scenario.send(exited), EndJob)
    assert (command.outcome, command.signal) == (outcome, 15)
    assert scenario.why(1) == "slurm 12 has ended it"


@pytest.mark.parametrize("waits", [{"after": (1,)}, {"held_by": "alice"}])
def test_cancel_in_the_queue_ends_at_once(scenario: Scenario, waits: dict[str, object]) -> None:
    scenario.start(1)
    scenario.submit(2, **waits)
    assert only(scenario.send(events.CancelRequested(2)), EndJob).outcome is Outcome.CANCELLED


def test_cancel_terminates_then_kills(scenario: Scenario) -> None:
    scenario.start(1)
    assert scenario.send(events.CancelRequested(1)) == [SignalJob(1, 15)]
    assert scenario.send(events.CancelRequested(1)) == []
    assert scenario.job(1).phase is JobPhase.STOPPING
    assert scenario.exactly_at(10_000) == [SignalJob(1, 9)]
    assert only(scenario.exit(1, None, 9), EndJob).outcome is Outcome.CANCELLED
    assert scenario.machine.next_timer() is None


def test_cancel_while_starting_signals_again_when_there_is_a_process(scenario: Scenario) -> None:
    scenario.submit(1)
    assert scenario.send(events.CancelRequested(1)) == [SignalJob(1, 15)]
    assert scenario.send(events.ProcessStarted(1)) == [SignalJob(1, 15)]
    scenario.at(10_000)
    assert scenario.send(events.ProcessStarted(1)) == [SignalJob(1, 9)]


def test_a_start_that_fails(scenario: Scenario) -> None:
    scenario.submit(1)
    assert only(scenario.send(events.StartFailed(1, "no such directory")), EndJob).outcome is Outcome.FAILED
    assert scenario.why(1) == "could not be started: no such directory"
    scenario.submit(2)
    scenario.send(events.CancelRequested(2))
    assert only(scenario.send(events.StartFailed(2, "cancelled meanwhile")), EndJob).outcome is Outcome.CANCELLED


def test_attached_before_the_shim_said_that_it_started(scenario: Scenario) -> None:
    scenario.submit(1)
    scenario.send(events.Attached(1))
    scenario.want(1)
    assert scenario.job(1).holder
    scenario.send(events.ProcessStarted(1))
    assert scenario.job(1).phase is JobPhase.RUNNING


def test_a_second_process_may_attach_after_the_first_has_gone(scenario: Scenario) -> None:
    scenario.start(1)
    with pytest.raises(IllegalTransition, match="another process is attached"):
        scenario.send(events.Attached(1))
    scenario.ask(1, P, 100)
    scenario.want(1)
    scenario.release(1, ms=50, iterations=5)
    scenario.send(events.Detached(1))
    assert scenario.machine.view().devices["host0"].free == 1000 << 20
    scenario.send(events.Attached(1))
    scenario.send(events.Sampled(1, Usage(iterations=1, device_us=7_000)))
    assert scenario.job(1).attained_us == 57_000


def test_illegal_events_tell_the_story_and_change_nothing(scenario: Scenario) -> None:
    scenario.start(1)
    scenario.submit(2, after=(1,))
    scenario.submit(3)
    before = scenario.machine.view()
    with pytest.raises(IllegalTransition, match="no job 7"):
        scenario.want(7)
    with pytest.raises(IllegalTransition, match=r"(?s)no process of the job has attached.*Submitted"):
        scenario.want(3)
    for event in (events.ProcessStarted(2), events.ProcessExited(2, 0), events.Attached(2), events.TurnWanted(2)):
        with pytest.raises(IllegalTransition, match=r"(?s)while the job is queued.*Submitted"):
            scenario.send(event)
    with pytest.raises(IllegalTransition, match="exists already"):
        scenario.submit(1)
    with pytest.raises(IllegalTransition, match="the job has no turn"):
        scenario.release(1)
    after = scenario.machine.view()
    assert (after.jobs, after.lanes, after.devices) == (before.jobs, before.lanes, before.devices)


def test_every_pair_of_phase_and_event_is_legal_late_or_illegal_on_purpose_and_drawn() -> None:
    assert set(TABLE) == set(JobPhase)
    text = mermaid()
    reachable = set()
    for phase, row in TABLE.items():
        for cause, targets in row.items():
            assert isinstance(cause, str) or (phase, cause) not in LATE
            assert all(f"{phase} --> {target}" in text for target in targets)
            reachable |= set(targets)
    assert reachable == set(JobPhase)


def test_the_machine_follows_the_table() -> None:
    """Every edge of the table, taken on the machine, leads where the table says; nothing else is possible."""
    made = {
        events.CancelRequested: lambda: events.CancelRequested(1),
        events.ProcessStarted: lambda: events.ProcessStarted(1),
        events.StartFailed: lambda: events.StartFailed(1, "x"),
        events.ProcessExited: lambda: events.ProcessExited(1, 0),
    }
    for phase in JobPhase:
        for kind, make in made.items():
            scenario = in_phase(phase)
            if kind in TABLE[phase]:
                scenario.send(make())
                assert scenario.job(1).phase in TABLE[phase][kind], (phase, kind)
            elif (phase, kind) in LATE:
                assert scenario.send(make()) == [] and scenario.job(1).phase is phase
            else:
                with pytest.raises(IllegalTransition):
                    scenario.send(make())


def in_phase(phase: JobPhase) -> Scenario:
    scenario = Scenario()
    if phase is not JobPhase.QUEUED:
        scenario.device("host0", 100)
    scenario.submit(1)
    if phase in (JobPhase.RUNNING, JobPhase.STOPPING, JobPhase.ENDED):
        scenario.send(events.ProcessStarted(1))
    if phase is JobPhase.STOPPING:
        scenario.send(events.CancelRequested(1))
    if phase is JobPhase.ENDED:
        scenario.exit(1)
    assert scenario.job(1).phase is phase
    return scenario


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": "lottery"}, "unknown policy 'lottery'; known policies: fair, srtf, fifo, las, pack, sjf, srsf"),
        ({"policy": "nobody.has.loaded:This"}, "unknown policy 'nobody.has.loaded:This'"),
        ({"backfill": 2}, "backfill is 2; it must be 0 or 1, or not set"),
        ({"quantum_us": -1}, "quantum_us is -1; it must be at least 0"),
        ({"growth_step": 0}, "growth_step is 0; it must be at least 1"),
        ({"max_switch_share_ppm": 0}, "max_switch_share_ppm is 0"),
        ({"extra": {"speed": 3}}, "fair has no setting speed; its own settings: none"),
    ],
)
def test_impossible_settings(scenario: Scenario, changes: dict[str, object], message: str) -> None:
    before = scenario.machine.view().settings
    with pytest.raises(ValueError, match=message):
        scenario.send(events.SettingsChanged(Settings(**changes)))  # type: ignore[arg-type]
    assert scenario.machine.view().settings == before
    scenario.start(1)


def test_an_invariant_that_breaks_is_told_with_its_story(scenario: Scenario) -> None:
    scenario.start(1, estimate=estimate(10, 10))
    state = scenario.machine._state
    state.lanes[1].size += 1
    state.devices["host0"].lane_bytes += 1
    with pytest.raises(InvariantError, match=r"(?s)lane 1: not as large as its largest job.*Attached"):
        scenario.machine.check()
    state.lanes[1].size -= 1
    with pytest.raises(InvariantError, match="books say"):
        scenario.machine.check()
    state.devices["host0"].lane_bytes -= 1
    for due, what in (([1], "overdue, but not queued"), ([1, 1], "overdue more than once")):
        state.due = due
        with pytest.raises(InvariantError, match=what):
            scenario.machine.check()
    state.due = []
    state.entries[1] = ((), 0, 1)
    with pytest.raises(InvariantError, match="the queue has"):
        scenario.machine.check()
    del state.entries[1]


def test_the_view_does_not_change_any_more(scenario: Scenario) -> None:
    scenario.start(1)
    view = scenario.machine.view()
    scenario.want(1)
    scenario.start(2)
    assert not view.jobs[1].holder and set(view.jobs) == {1}
    assert scenario.machine.view().jobs[1].holder
    with pytest.raises(TypeError):
        view.jobs[1] = view.jobs[1]  # type: ignore[index]


# Jobs whose attached process is gone while others of them have device memory


WHY = "several of its processes use the device"


def left_behind(scenario: Scenario, kept: int) -> None:
    scenario.start(1)
    scenario.send(events.TraitsSeen(1, alone=WHY))
    scenario.ask(1, P, 100)
    scenario.send(events.Detached(1, WHY, kept * MIB))


def test_what_they_have_stays_theirs(scenario: Scenario) -> None:
    left_behind(scenario, 40)
    assert scenario.job(1).granted == Memory(40 * MIB, 0) and not scenario.machine.view().jobs[1].attached
    assert only(scenario.ask(1, P, 10**6), DenyMemory).reason.code == "too_large"
    assert only(scenario.ask(1, P, 60), GrantMemory).answers is P
    scenario.send(events.MemoryReturned(1, P, 20 * MIB))
    assert scenario.job(1).granted == Memory(20 * MIB, 0)
    scenario.send(events.Attached(1))
    granted = only(scenario.ask(1, P, 50), GrantMemory)
    assert granted.answers is P and granted.memory.persistent >= 50 * MIB, "who comes next has it beside its own"
    scenario.exit(1)
    assert scenario.machine.view().devices["host0"].free == scenario.machine.view().devices["host0"].capacity


def test_it_cannot_be_moved() -> None:
    scenario = one_device(oversubscribe=Oversubscribe.ON)
    scenario.start(2)
    left_behind(scenario, 40)
    assert moved_out(scenario.ask(2, P, 990) + scenario.at(60_000).last) == []
    assert scenario.job(1).granted == Memory(40 * MIB, 0)


def test_without_any_nothing_stays(scenario: Scenario) -> None:
    left_behind(scenario, 0)
    assert scenario.machine.view().jobs[1].granted == Memory()


def test_who_had_nothing_may_ask_when_it_is_known_that_there_are_several(scenario: Scenario) -> None:
    """Without a process in its seat, and before that, nobody listens."""
    scenario.start(1)
    scenario.send(events.Detached(1, None, 0))
    assert scenario.ask(1, P, 6) == []
    scenario.send(events.TraitsSeen(1, alone=WHY))
    assert only(scenario.ask(1, P, 6), GrantMemory).answers is P
