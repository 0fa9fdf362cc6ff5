"""A policy that is wrong does no harm: what it cannot say is decided by arrival, and it is known what went wrong."""

from __future__ import annotations

from typing import Any

import pytest

from carpool.core.events import PolicyTimedOut
from carpool.core.machine import Machine
from carpool.core.model import MIB, Settings
from carpool.core.policies import BasePolicy, load_policy, register_policy
from carpool.core.policies.placement import register_placement
from carpool.core.policies.registry import Guarded, PolicyTimeout
from carpool.sim.driver import PolicyFailed, simulate
from carpool.sim.model.options import Options
from carpool.sim.model.trace_job import TraceJob
from tests.core.scenario import EVERY_BOUNDARY, Scenario, estimate

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
    scenario = Scenario(Settings(policy="wrong", quantum_us=0, max_switch_share_ppm=1_000_000))
    scenario.device("host0", 1000)
    for job in (2, 1):
        scenario.start(job, estimate=estimate(10, 10))
        scenario.want(job)
    scenario.machine.check()
    assert scenario.machine.view().lanes[1].holder == 2, "it came first"
    assert scenario.machine.policy_fault == "turn_key failed: RuntimeError: no idea"


@pytest.mark.parametrize("register", [register_policy, register_placement])
@pytest.mark.parametrize("error", [SystemExit(3), ZeroDivisionError()])
def test_a_policy_that_cannot_be_made(register: Any, error: BaseException) -> None:
    def fail(_: object) -> None:
        raise error

    for broken in (type("Broken", (), {"__init__": fail}), type("Broken", (), {"settings": property(fail)})):
        with pytest.raises(ValueError, match=r"making one fails: (SystemExit|ZeroDivisionError)"):
            register("broken", broken)


def test_a_policy_that_is_right_has_no_fault() -> None:
    register_policy("right", breaking("lanes", 2))
    assert Machine(Settings(policy="right")).policy_fault is None
    assert Machine(EVERY_BOUNDARY).policy_fault is None


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
