"""Checks that every policy must pass, Carpool's own or a user's, in lanes and on whole devices.

Three parts: what a policy declares, its answers to every question that the core asks while random traces
run and to some questions about made-up jobs (`probe`), and the results for the jobs (`outcome`).

A test of a user's policy::

    from carpool.policy_check import check_policy

    def test_my_policy_keeps_the_contract():
        check_policy("mine.py:Mine")
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

from carpool.core.events import Event, InvariantError
from carpool.core.model import Allocation, Settings
from carpool.core.policies import Policy, policy_class, register_policy
from carpool.plugins import ensure_policy
from carpool.policy_check.cases import Case, lane_case, made_up_view, whole_case
from carpool.policy_check.outcome import (
    ContractViolation,
    accepted_settings,
    at,
    check_declaration,
    check_repeated,
    check_result,
)
from carpool.policy_check.probe import Questions, probe_class
from carpool.sim.driver import Simulation, Stuck, simulate
from carpool.sim.model.options import Options
from carpool.sim.model.result import Result
from carpool.sim.model.trace_job import TraceJob

__all__ = ["ContractViolation", "check_policy"]

SEEDS = range(4)
#: The name under which the policy is registered with the core while it is checked.
PROBED = "policy-under-contract"
#: Upper bound on events per job; many times what any sensible policy needs for the traces here.
EVENTS_PER_JOB = 2_000


def check_policy(name: str, seeds: Iterable[int] = SEEDS) -> None:
    """Run a policy, named as for `Settings.policy`, over random traces and made-up jobs.

    Raises ContractViolation, which says what the policy did wrong and about which job, and ValueError if the policy
    cannot be loaded.
    """
    ensure_policy(name)
    kind = policy_class(name)
    with at(name):
        check_declaration(kind)
        register_policy(PROBED, kind, guarded=False)
        choices: list[dict[str, int]] = [{}, *accepted_settings(PROBED, kind)]
        for seed in seeds:
            draw = random.Random(seed)
            extra = draw.choice(choices)
            with at(f"seed {seed}, settings {extra}"):
                _check_answers(kind, extra, draw)
                for place, make in (("whole devices", whole_case), ("lanes", lane_case)):
                    with at(place):
                        _check_runs(name, kind, make(draw, extra))


def _check_answers(kind: type[Policy], extra: dict[str, int], draw: random.Random) -> None:
    """Ask the policy every question about jobs in every state, including states in which the core would not ask it."""
    questions = Questions()
    policy = probe_class(kind, questions)()
    for allocation in Allocation:
        view = made_up_view(draw, Settings(allocation=allocation, extra=extra))
        jobs = [*view.jobs.values()]
        for device in view.devices.values():
            policy.lanes(view, device)
        for job in jobs:
            policy.admission_key(view, job)
            policy.turn_key(view, job)
            policy.next_change(view, job)
            policy.switch_after(view, job, draw.choice(jobs))
            policy.victim_key(view, job, draw.choice((None, 0, draw.randint(1, 20))))
    questions.ask_again(kind)


def _check_runs(name: str, kind: type[Policy], case: Case) -> None:
    """Run a case once through the probe, which also stops endless runs, and then twice without the probe."""
    questions = Questions()
    register_policy(PROBED, probe_class(kind, questions), guarded=False)
    watched = _watched(case)
    questions.ask_again(kind)
    check_result(watched)
    for plain in _plain_runs(name, case):
        check_repeated(watched, plain)


def _watched(case: Case) -> Result:
    try:
        simulation = BoundedSimulation(case.jobs, case.options(PROBED), EVENTS_PER_JOB * len(case.jobs))
        simulation.run()
    except Stuck as error:
        raise ContractViolation(str(error).replace(PROBED, "it")) from error
    except InvariantError as error:
        raise ContractViolation(f"the core contradicts itself under it: {error}") from error
    return simulation.result(0.0)


def _plain_runs(name: str, case: Case) -> Iterator[Result]:
    for _ in range(2):
        yield simulate(case.jobs, case.options(name))


class BoundedSimulation(Simulation):
    """A simulation that checks the core after every event, and stops after too many events."""

    def __init__(self, jobs: Sequence[TraceJob], options: Options, most_events: int) -> None:
        self._most_events = most_events
        super().__init__(jobs, options)

    def _handle(self, event: Event) -> None:
        super()._handle(event)
        self._machine.check()
        if self._events > self._most_events:
            raise ContractViolation(
                f"{self._events} events and still {self._scene.ledger.left} of {len(self._scene.ledger.results)} jobs"
                " to come: does it change its mind without end (next_change, switch_after)?"
            )
