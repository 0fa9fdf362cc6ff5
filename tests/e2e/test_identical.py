"""What a job computes is bit for bit what it computes alone: two jobs and five in one lane, a switch per iteration.

In `make test` a job runs several of the scripts.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from tests.tiers import all_but_first

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon, Running
    from tests.live import Workload

#: Each list is run by one process of `make test`, in this order; what is last changes all that would follow.
TOGETHER = [
    ["sgd", "accumulation", "gan", "zero_grad after", "lbfgs", "exec_storm", "handlers faulthandler"],
    ["adam", "cache", "zero_grad before", "threads", "checkpoints", "exception", "handlers handler"],
    ["grad_scaler", "loader fork", "ema", "io_calls", "two_models", "handlers blocked"],
    ["evaluation", "zero_grad keep", "fork_child", "unusual", "loader spawn", "by_hand"],
]
WORKLOADS = [name for names in TOGETHER for name in names]
NO_COMPILER = not any(map(shutil.which, ("c++", "g++", "clang++")))
#: Jobs of unknown memory are measured one after another, which can take as long as these short scripts run.
KNOWN = {"persistent_bytes": 8 << 20, "ephemeral_bytes": 16 << 20}
#: The first without code that a C++ compiler has to translate, which takes long.
WITH_COMPILED = [
    ("compiled aot_eager", "two_models"),
    ("compiled inductor", "two_models"),
    ("lbfgs", "gan", "compiled inductor", "cache", "accumulation"),
]


def groups(size: int, stride: int) -> list[tuple[str, ...]]:
    """Every workload in a group of ``size``; ``stride`` decides who meets whom."""
    order = sorted(range(len(WORKLOADS)), key=lambda index: (index % stride, index))
    names = [WORKLOADS[index] for index in order]
    names += names[: -len(names) % size]
    return [tuple(names[begin : begin + size]) for begin in range(0, len(names), size)]


GROUPS: list[Any] = all_but_first(
    map(pytest.param, [*groups(2, stride=1), *groups(5, stride=6)]),
    stay=0,
)
COMPILED: list[Any] = all_but_first(
    pytest.param(names, marks=pytest.mark.skipif(NO_COMPILER, reason="torch.compile needs a C++ compiler"))
    for names in WITH_COMPILED
)


@pytest.mark.parametrize("lists", [TOGETHER[:2], TOGETHER[2:]], ids=lambda lists: f"{lists[0][0]}, {lists[1][0]}, ...")
def test_results_of_several_scripts_are_those_of_runs_alone(
    lists: list[list[str]], bare: Bare, eager_daemon: Daemon, workload: type[Workload]
) -> None:
    jobs = [eager_daemon.submit(workload("several", tuple(names)), meet=True, hints=KNOWN) for names in lists]
    expected = [bare([workload.named(name) for name in names]) for names in lists]
    eager_daemon.meeting.begin(len(jobs), together=True)
    for job, names, alone in zip(jobs, lists, expected, strict=True):
        assert differing(names, job.result(), alone) == []
    assert_shared(jobs, least_switches=2 * max(map(len, lists)))


def differing(names: Sequence[str], results: Sequence[object], alone: Sequence[object]) -> list[str]:
    """Those with other results than alone."""
    return [name for name, result, one in zip(names, results, alone, strict=True) if result != one]


def assert_shared(jobs: Sequence[Running], least_switches: int) -> None:
    """Their lane."""
    infos = [job.info() for job in jobs]
    assert len({(info.device, info.lane) for info in infos}) == 1
    assert all(info.iterations >= 15 for info in infos)
    assert min(info.switches for info in infos) >= least_switches, [info.switches for info in infos]


@pytest.mark.parametrize("names", [*COMPILED, *GROUPS], ids=lambda names: f"{len(names)}: " + ", ".join(names))
def test_results_are_those_of_a_run_alone(
    names: tuple[str, ...], bare: Bare, eager_daemon: Daemon, workload: type[Workload]
) -> None:
    workloads = [workload.named(name) for name in names]
    jobs, expected = eager_daemon.run_together(workloads, bare, hints=KNOWN, together=True)
    assert differing(names, [job.result() for job in jobs], expected) == []
    assert_shared(jobs, least_switches=2)
