"""Every policy keeps the contract, and the suite catches those that do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from carpool import policy_check
from carpool.core.model import Allocation, Outcome, Settings
from carpool.core.policies import BasePolicy, available_policies
from carpool.policy_check import ContractViolation, check_policy
from carpool.policy_check.outcome import check_repeated, check_result
from carpool.sim.driver import simulate
from carpool.sim.model.options import Options
from carpool.sim.model.result import Result, Span
from carpool.sim.model.trace_job import TraceJob
from tests.conformance.broken import EXPECTED
from tests.examples import examples

ROOT = Path(__file__).resolve().parents[2]
USERS = (f"{ROOT}/docs/examples/policies/aging.py:Aging", "tests.core.smallest:Smallest")


@pytest.mark.parametrize("name", [*available_policies(), *USERS], ids=lambda name: name.rpartition(":")[2])
def test_it_keeps_the_contract(name: str) -> None:
    check_policy(name)


@pytest.mark.parametrize(("kind", "said"), EXPECTED.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_policy_is_caught_with_its_story(
    kind: type[BasePolicy], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = policy_check.EVENTS_PER_JOB  # one never comes to an end
    monkeypatch.setattr(policy_check, "EVENTS_PER_JOB", examples(bound, fewer=bound // 10))
    with pytest.raises(ContractViolation, match=f"(?s)^tests.conformance.broken:{kind.__name__}: .*{said}"):
        check_policy(f"tests.conformance.broken:{kind.__name__}")


def test_a_story_names_the_seed_and_the_job() -> None:
    with pytest.raises(ContractViolation, match=r"seed 7, settings {}: .*\n  about JobView\(id="):
        check_policy("tests.conformance.broken:FloatKey", seeds=[7])


def test_what_is_no_policy_is_refused_before() -> None:
    with pytest.raises(ValueError, match="is not a policy"):
        check_policy("tests.core.scenario:Scenario")


def test_every_class_of_broken_policies_is_tried() -> None:
    from tests.conformance import broken

    made = {kind for kind in vars(broken).values() if isinstance(kind, type) and issubclass(kind, BasePolicy)}
    assert made - {BasePolicy} == set(EXPECTED)


def test_a_core_that_contradicts_itself_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The invariants are looked at while a policy is checked."""
    from carpool.core.events import InvariantError
    from carpool.core.machine import Machine

    def broken(self: Machine) -> None:
        raise InvariantError("job 1: two heads")

    monkeypatch.setattr(Machine, "check", broken)
    with pytest.raises(ContractViolation, match="whole devices: the core contradicts itself under it: job 1"):
        check_policy("fifo")


# The core keeps policies from doing these, so the checks are tried on results that were tampered with.


def result() -> Result:
    """Two jobs of two devices and one of one."""
    jobs = [TraceJob("A", 0, 100, gpus=2), TraceJob("B", 10, 100, gpus=2), TraceJob("C", 20, 100)]
    settings = Settings(policy="fifo", allocation=Allocation.DEVICES)
    return simulate(jobs, Options(2, settings, record=True))


def spans_of(one: Result) -> list[Span]:
    assert one.recording is not None
    return one.recording.spans


def _lost(one: Result) -> None:
    one.jobs[1].outcome = Outcome.LOST


def _began_too_early(one: Result) -> None:
    one.jobs[1].started_us = 5


def _used_twice(one: Result) -> None:
    spans_of(one).append(Span(2, 0, 0, 50, 150))


def _one_device_of_two(one: Result) -> None:
    del spans_of(one)[0]


def _work_left_undone(one: Result) -> None:
    spans_of(one)[-1] = spans_of(one)[-1]._replace(end_us=210)


TAMPERED: dict[Callable[[Result], None], str] = {
    _lost: "job B ended lost",
    _began_too_early: "began before it came",
    _used_twice: "two jobs at one place",
    _one_device_of_two: r"job A needs 2 devices and held \[1\]",
    _work_left_undone: "job C worked 10 us of 100",
}


@pytest.mark.parametrize(("tamper", "said"), TAMPERED.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_a_wrong_result_is_caught(tamper: Callable[[Result], None], said: str) -> None:
    wrong = result()
    check_result(wrong)
    tamper(wrong)
    with pytest.raises(ContractViolation, match=said):
        check_result(wrong)


def test_runs_that_differ_are_caught() -> None:
    first = result()
    check_repeated(first, result())
    other_jobs, other_spans, other_events = result(), result(), replace(first, events=first.events + 1)
    other_jobs.jobs[0].preemptions += 1
    spans_of(other_spans).pop()
    for other in (other_jobs, other_spans, other_events):
        with pytest.raises(ContractViolation, match="two runs of one trace differ"):
            check_repeated(first, other)


def test_a_simulation_that_gets_stuck_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from carpool.sim import driver

    monkeypatch.setattr(driver, "IDLE_TICKS", 3)
    monkeypatch.setattr(policy_check, "EVENTS_PER_JOB", 10**9)
    with pytest.raises(ContractViolation, match=r"whole devices: job .* would never end under it"):
        check_policy("tests.conformance.broken:RestlessOnDevices")
