"""Order and fairness under each policy, on the real machine."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from carpool.core import events
from carpool.core.commands import NameSuccessor, RequestYield, WatchIdle
from carpool.core.events import PolicyTimedOut
from carpool.core.machine import Machine
from carpool.core.model import MIB, Settings, Usage
from carpool.core.policies import BasePolicy, available_policies, load_policy, register_policy
from carpool.core.policies.placement import register_placement
from carpool.core.policies.registry import Guarded, PolicyTimeout, Registry
from carpool.plugins import ensure_policy
from carpool.sim.driver import PolicyFailed, simulate
from carpool.sim.model.options import Options
from carpool.sim.model.trace_job import TraceJob
from tests.core import placements, timelines
from tests.core.scenario import estimate, one_device
from tests.core.timelines import Timeline, Toy, settings


def device_ms(timeline: Timeline, until: int) -> dict[str, int]:
    """Device time of each job up to a moment."""
    return {
        toy.name: sum(max(0, min(end, until) - begin) for begin, end, _ in toy.spans) for toy in timeline.toys.values()
    }


def long_jobs(*shapes: tuple[str, int, int, int]) -> list[Toy]:
    """Name, arrival, milliseconds per iteration, weight; all long enough not to end within the test."""
    return [Toy(name, arrives, 2000 // device, device, weight=weight) for name, arrives, device, weight in shapes]


def test_fair_gives_equal_device_time_whatever_an_iteration_takes() -> None:
    timeline = Timeline(settings("fair"), long_jobs(("A", 0, 3, 100), ("B", 0, 40, 100), ("C", 0, 11, 100))).run()
    shares = device_ms(timeline, 3000)
    assert max(shares.values()) - min(shares.values()) <= 100, shares


def test_fair_follows_weights() -> None:
    timeline = Timeline(settings("fair", 20), long_jobs(("A", 0, 5, 300), ("B", 0, 5, 100))).run()
    shares = device_ms(timeline, 2000)
    assert shares["A"] / shares["B"] == pytest.approx(3, rel=0.1)


def test_a_newcomer_starts_level_with_the_present() -> None:
    timeline = Timeline(settings("fair"), long_jobs(("A", 0, 10, 100), ("B", 1000, 10, 100))).run()
    after = {name: share - (1000 if name == "A" else 0) for name, share in device_ms(timeline, 2000).items()}
    assert abs(after["A"] - after["B"]) <= 100, after


def test_a_job_that_was_away_does_not_hoard_credit() -> None:
    """A is away for a second; afterwards B keeps half of the device."""
    scenario = one_device(quantum_us=50_000)
    scenario.start_each(1, 2, estimate=estimate(10, 10))
    scenario.want(1)
    scenario.at(50).release(1, ms=50)
    scenario.want(2)
    scenario.at(1050).want(1)
    one, two = scenario.job(1), scenario.job(2)
    assert two.virtual_us == 1_050_000, "it started where the lane was, and has had a second"
    assert one.virtual_us == 1_000_000, "level, less one quantum of credit"


def test_a_short_absence_costs_nothing() -> None:
    """Nearly half of A's time is on the CPU; it still gets half of the device, and B fills the gaps."""
    toys = [Toy("A", 0, 100, 10, cpu=8), Toy("B", 0, 200, 10)]
    shares = device_ms(Timeline(settings("fair", 5), toys).run(), 1000)
    assert shares["A"] >= 480, shares
    assert shares["A"] + shares["B"] >= 980, "the device does not idle"


@pytest.mark.parametrize("policy", available_policies())
def test_no_policy_idles_the_device_while_somebody_could_compute(policy: str) -> None:
    toys = [Toy("A", 0, 20, 10, cpu=15), Toy("B", 0, 40, 7), Toy("C", 5, 30, 4, cpu=2)]
    timeline = Timeline(Settings(policy=policy, quantum_us=20_000, max_lanes=1), toys).run()
    spans = sorted(span[:2] for toy in toys for span in toy.spans)
    overlap = [(a, b) for a, b in pairwise(spans) if b[0] < a[1]]
    assert not overlap, "one turn per lane"
    b_end = toys[1].ended
    assert b_end is not None
    idle = sum(b[0] - a[1] for a, b in pairwise(spans) if b[0] <= b_end)
    assert idle == 0, "B never sleeps, so the device has no reason to"
    assert timeline.machine.view().lanes == {}


def test_srtf_orders_unknown_lengths_by_attained_service() -> None:
    scenario = one_device(policy="srtf")
    for job, attained in ((1, 400), (2, 300), (3, 10)):
        scenario.start(job)
        scenario.send(events.Sampled(job, Usage(iterations=10, device_us=attained * 1000)))
    scenario.want_each(1, 2)
    assert scenario.want(3) == [NameSuccessor(1, 1, 3)]


def test_srtf_knows_the_rest_from_progress_iterations_duration_or_history() -> None:
    scenario = one_device(policy="srtf")
    scenario.start(1, iterations=100)
    scenario.start(2, duration_us=500_000)
    scenario.start(3, estimate=estimate(1, 1, iteration_us=2000, iterations=50))
    scenario.start(4, iterations=1_000_000)
    assert [scenario.job(job).remaining_us for job in (1, 2, 3)] == [None, 500_000, 100_000]
    for job in (1, 2, 3):
        scenario.send(events.Sampled(job, Usage(iterations=10, device_us=10_000)))
    assert [scenario.job(job).remaining_us for job in (1, 2, 3)] == [90_000, 490_000, 40_000]
    scenario.send(events.Sampled(4, Usage(iterations=7, device_us=30_000, progress_done=3, progress_total=4)))
    assert scenario.job(4).remaining_us == 10_000


def test_srtf_asks_the_longer_one_for_its_turn() -> None:
    scenario = one_device(policy="srtf")
    for job, iterations in ((1, 500), (2, 900), (3, 20)):
        scenario.start(job, iterations=iterations, estimate=estimate(10, 50, iteration_us=1000))
    scenario.want(1)
    assert scenario.want(2) == [NameSuccessor(1, 1, 2), WatchIdle(1, 20_000)], "a longer one waits"
    assert scenario.want(3) == [NameSuccessor(1, 1, 3), RequestYield(1)]


def test_a_policy_of_ones_own_with_settings_of_its_own() -> None:
    name = "tests.core.smallest:Smallest"
    ensure_policy(name)
    scenario = one_device(policy=name, extra={"patience_us": 30_000})
    scenario.start(1, estimate=estimate(10, 50))
    scenario.start(2, estimate=estimate(20, 50))
    scenario.want_each(1, 2)
    assert scenario.exactly_at(30) == [RequestYield(1)]
    assert load_policy(name).name == "smallest"


# A policy that is wrong does no harm: what it cannot say is decided by arrival, and it is known what went wrong


METHODS = ("lanes", "admission_key", "turn_key", "switch_after", "victim_key", "next_change")
#: Each needs more than half of the device, and is often on the host: their memory is moved.
JOBS = [TraceJob(str(number), number, 1_000_000, 1, 5, 100_000, 100_000, 9 * MIB) for number in range(5)]


def breaking(method: str, answer: Any) -> type[BasePolicy]:
    """A policy with one method that returns ``answer``, or raises it."""

    def wrong(self: BasePolicy, *arguments: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return type("Wrong", (BasePolicy,), {method: wrong, "preemptive": method in ("turn_key", "next_change")})


@pytest.mark.parametrize("method", [method for method in METHODS if method != "next_change"])
@pytest.mark.parametrize("answer", [ZeroDivisionError("division by zero"), SystemExit(3), "soon", -1, 1.5, [1]])
def test_jobs_are_served_by_arrival_and_the_fault_is_told(method: str, answer: Any) -> None:
    register_policy("wrong", breaking(method, answer))
    with pytest.raises(
        PolicyFailed, match=rf"the policy wrong is wrong: {method} (failed: Zero|failed: SystemExit: 3|returned)"
    ):
        simulate(JOBS, Options(settings=Settings(policy="wrong"), device_memory=16 * MIB))


def test_the_machine_goes_on_and_says_so() -> None:
    register_policy("wrong", breaking("turn_key", RuntimeError("no idea")))
    scenario = one_device(policy="wrong")
    assert scenario.machine.policy_fault is None
    for job in (2, 1):
        scenario.start_and_want(job, estimate=estimate(10, 10))
    assert scenario.machine.view().lanes[1].holder == 2, "it came first"
    assert scenario.machine.policy_fault == "turn_key failed: RuntimeError: no idea"
    register_policy("right", breaking("lanes", 2))
    assert Machine(Settings(policy="right")).policy_fault is None


@pytest.mark.parametrize("register", [register_policy, register_placement])
@pytest.mark.parametrize("error", [SystemExit(3), ZeroDivisionError()])
def test_a_policy_that_cannot_be_made(register: Any, error: BaseException) -> None:
    def fail(_: object) -> None:
        raise error

    for broken in (type("Broken", (), {"__init__": fail}), type("Broken", (), {"settings": property(fail)})):
        with pytest.raises(ValueError, match=r"making one fails: (SystemExit|ZeroDivisionError)"):
            register("broken", broken)


def test_what_a_check_of_settings_raises() -> None:
    register_policy("wrong", breaking("check", KeyError("patience")))
    with pytest.raises(ValueError, match="check failed: KeyError: 'patience'"):
        Machine(Settings(policy="wrong"))
    register_policy("wrong", breaking("check", ValueError("patience must be even")))
    with pytest.raises(ValueError, match=r"^patience must be even$"):
        Machine(Settings(policy="wrong"))


def test_errors_are_seen_where_they_are_wanted() -> None:
    register_policy("wrong", breaking("lanes", RuntimeError("no idea")), guarded=False)
    with pytest.raises(RuntimeError, match="no idea"):
        load_policy("wrong").lanes(None, None)  # type: ignore[arg-type]


# Policies that do not answer in time


class Impatient:
    """Interrupts the call of a number, as a timer would."""

    def __init__(self, number: int) -> None:
        self._left = number

    def __call__(self, ask: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            raise PolicyTimeout("took too long")
        return ask()


def answers(guard: Guarded, count: int = 3) -> list[Any]:
    guard.begin_event()
    return [guard.lanes(None, None) for _ in range(count)]  # type: ignore[arg-type] - the policy looks at nothing


def test_a_policy_that_does_not_answer_is_not_asked_again() -> None:
    guard = Guarded(breaking("lanes", 7)(), Impatient(5))
    other = BasePolicy().lanes(None, None)  # type: ignore[arg-type]
    assert answers(guard) == [7, 7, 7] and guard.take_timeout() is None
    assert answers(guard) == [7, other, other] and guard.take_timeout() == 2
    assert answers(guard) == [other, other, other] and guard.take_timeout() is None
    assert guard.fault == "lanes took too long; it is not used again until it is chosen anew"


def test_a_replay_falls_back_at_the_same_question() -> None:
    guard = Guarded(breaking("lanes", 7)())
    other = BasePolicy().lanes(None, None)  # type: ignore[arg-type]
    guard.time_out_at(2)
    assert answers(guard) == [7, other, other]
    assert answers(guard) == [other, other, other]


def test_a_timeout_outside_of_events_counts_from_the_next_one_on() -> None:
    guard = Guarded(breaking("lanes", 7)(), Impatient(4))
    assert answers(guard) == [7, 7, 7]
    guard.lanes(None, None)  # type: ignore[arg-type]
    guard.begin_event()
    assert guard.take_timeout() == 0
    replayed = Guarded(breaking("lanes", 7)())
    replayed.time_out_at(0)
    assert 7 not in answers(replayed)


def test_a_timeout_of_a_sort_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="a sort of policy is one of policy, placement"):
        Machine(Settings()).handle(PolicyTimedOut("colour", 1), 0)
    assert Machine(Settings()).handle(PolicyTimedOut("policy", 1), 0) == [], "Carpool's own answer in time"


# What both sorts of policies share: how they are found by name, and what is none


class Base:
    name = "base"
    settings: tuple[str, ...] = ()


class Own(Base):
    name = "own"


class Theirs(Base):
    name = "theirs"


class Edited(Base):
    name = "edited"


class Counted(Base):
    settings = (1, 2)  # type: ignore[assignment]


class Guard(Base):
    def __init__(self, policy: Base) -> None:
        self.name = f"guarded {policy.name}"


@pytest.fixture
def registry() -> Registry[Base]:
    return Registry(("rule", "rules", "known rules"), (Own,), Base, Guard)


def test_those_of_others_are_guarded_unless_their_errors_are_wanted(registry: Registry[Base]) -> None:
    registry.register("a", Theirs)
    registry.register("b", Theirs, guarded=False)
    assert [registry.load(name).name for name in ("own", "a", "b")] == ["own", "guarded theirs", "theirs"]
    assert (registry.kind("own"), registry.kind("a")) == (Own, Theirs)
    assert registry.is_registered("a") and not registry.is_registered("own")
    registry.register("b", Edited)
    assert registry.load("b").name == "guarded edited"


def test_a_name_that_nobody_knows_and_settings_that_are_no_names(registry: Registry[Base]) -> None:
    registry.register("a", Theirs)
    with pytest.raises(ValueError, match=r"^unknown rule 'b'; known rules: own, a; or one of yours, as path.py:Class$"):
        registry.load("b")
    with pytest.raises(KeyError):
        registry.kind("b")
    with pytest.raises(ValueError, match=r"^'a' is not a rule: its settings are \(1, 2\), not a tuple of names$"):
        registry.register("a", Counted)


def test_an_error_leaves_what_was_there(registry: Registry[Base]) -> None:
    registry.register("a", Theirs, guarded=False)
    with pytest.raises(RuntimeError, match="not today"), registry.kept_on_error():
        registry.register("a", Edited)
        registry.register("b", Edited)
        raise RuntimeError("not today")
    assert registry.load("a").name == "theirs" and not registry.is_registered("b")


# What docs/policies.md and docs/placement.md show is what the core does


def test_every_timeline_listing_and_diagram_is_current_and_shown() -> None:
    document = timelines.DOCUMENT.read_text()
    assert timelines.filled(document) == document, "run: python -m tests.core.timelines"
    assert not [name for name in timelines.examples() if f"<!-- timeline {name} -->" not in document]
    assert "```text\n```" not in document
    code = (timelines.DOCUMENT.parents[1] / "tests/core/smallest.py").read_text()
    assert len(code.splitlines()) <= 32, "as short as promised"


def test_every_example_of_placement_is_current_and_shown() -> None:
    document = placements.DOCUMENT.read_text()
    assert placements.filled(document) == document, "run: python -m tests.core.placements"
    assert not [name for name in placements.examples() if f"<!-- placement {name} -->" not in document]
    assert "```text\n```" not in document
