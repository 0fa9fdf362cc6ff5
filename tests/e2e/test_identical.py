"""What a job computes is bit for bit what it computes alone: two jobs and five in one lane, a switch per iteration."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.tiers import all_but_first

if TYPE_CHECKING:
    from conftest import Bare, Daemon, Workload

WORKLOADS = [
    "sgd",
    "adam",
    "accumulation",
    "grad_scaler",
    "gan",
    "evaluation",
    "zero_grad after",
    "zero_grad before",
    "zero_grad keep",
    "loader fork",
    "checkpoints",
    "lbfgs",
    "ema",
    "cache",
    "io_calls",
    "exception",
    "threads",
    "fork_child",
    "exec_storm",
    "handlers faulthandler",
    "handlers handler",
    "handlers blocked",
    "by_hand",
    "two_models",
    "unusual",
    "loader spawn",
]
#: The scripts are short: on a busy machine one may be through before the others have begun.
ATTEMPTS = 3
NO_COMPILER = not any(map(shutil.which, ("c++", "g++", "clang++")))
#: Jobs of unknown memory are measured one after another, which can take as long as these short scripts run.
KNOWN = {"persistent_bytes": 8 << 20, "ephemeral_bytes": 16 << 20}
WITH_COMPILED = [("compiled", "two_models"), ("lbfgs", "gan", "compiled", "cache", "accumulation")]


def groups(size: int, stride: int) -> list[tuple[str, ...]]:
    """Every workload in a group of ``size``; ``stride`` decides who meets whom."""
    order = sorted(range(len(WORKLOADS)), key=lambda index: (index % stride, index))
    names = [WORKLOADS[index] for index in order]
    names += names[: -len(names) % size]
    return [tuple(names[begin : begin + size]) for begin in range(0, len(names), size)]


#: In `make test` each workload is in one group.
GROUPS: list[Any] = all_but_first(
    map(pytest.param, [*groups(2, stride=1), *groups(5, stride=6)]), stay=len(WORKLOADS) // 2
)
GROUPS += all_but_first(
    pytest.param(names, marks=pytest.mark.skipif(NO_COMPILER, reason="torch.compile needs a C++ compiler"))
    for names in WITH_COMPILED
)


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: f"{len(names)}: " + ", ".join(names))
def test_results_are_those_of_a_run_alone(
    names: tuple[str, ...], bare: Bare, eager_daemon: Daemon, workload: type[Workload]
) -> None:
    workloads = [workload.named(name) for name in names]
    for _ in range(ATTEMPTS):
        jobs, expected = eager_daemon.run_together(workloads, bare, hints=KNOWN)
        results = [job.result() for job in jobs]
        infos = [job.info() for job in jobs]
        differing = [name for name, result, alone in zip(names, results, expected, strict=True) if result != alone]
        assert not differing, f"other results than alone: {differing}"
        assert len({(info.device, info.lane) for info in infos}) == 1
        assert all(info.iterations >= 15 for info in infos)
        switches = [info.switches for info in infos]
        if min(switches) >= 2:
            return
    pytest.fail(f"the jobs hardly shared their lane: {switches}")
