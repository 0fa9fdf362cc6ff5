"""The measurements' arithmetic, with jobs that say what these tests want: how they fare on a GPU only a GPU shows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tools.gpu_check import mps, runner
from tools.gpu_check.measurements import fairness, handover, iterations, jobs
from tools.gpu_check.registry import Skip, needs_packages

MEASURES = {name: each for name, each in runner.load().items() if each.measures}
Answer = Callable[[int, tuple[str, ...]], str]


class Pretended:
    """A daemon whose jobs end at once, with the output that ``answer`` gives for a job's number and arguments."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._arguments: dict[int, tuple[str, ...]] = {}

    def submit(self, _program: str, *arguments: str) -> int:
        number = len(self._arguments)
        self._arguments[number] = arguments
        return number

    def output(self, job: int) -> str:
        return self._answer(job, self._arguments[job])


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def replace(module: Any, answer: Answer, **others: object) -> None:
        @contextmanager
        def daemon(*_: object, **__: object) -> Iterator[Pretended]:
            yield Pretended(answer)

        for name, value in {"daemon": daemon, "needs_cuda": lambda: None, **others}.items():
            monkeypatch.setattr(module, name, value)

    return replace


def outputs_of(shared: Pretended, commands: list[list[str]]) -> dict[int, str]:
    return {job: shared.output(job) for job in [shared.submit(*command) for command in commands]}


def ends(step: float, begin: float, end: float) -> str:
    marks = [begin + number * step for number in range(round((end - begin) / step) + 1)]
    return json.dumps({"us": step * 1e6, "ends": marks})


def test_every_row_of_the_table_has_a_measurement() -> None:
    models = {f"alone_{model}{graph}" for model in ("resnet50", "bert", "gpt", "mlp") for graph in ("", "_graph")}
    others = {"segment", "lane_of_resnet50_and_resnet50", "two_lanes_timeslice", "two_lanes_mps", "residue_cost"}
    others |= {"handover_timeslice", "handover_mps", "snapshot_cost", "offload_rate", "first_move"}
    others |= {"fairness"}
    assert models | others <= set(MEASURES)


def test_an_iteration_alone_is_compared_with_the_bare_one(pretend: Callable[..., None]) -> None:
    pretend(iterations, lambda *_: ends(0.011, 0, 1), run=lambda *_, **__: ends(0.01, 0, 1))
    figures = MEASURES["alone_gpt_graph"].function()
    assert figures is not None
    assert figures["ratio, median"] == pytest.approx(1.1)
    assert figures["bare, us"] == pytest.approx(10_000)


def test_throughput_counts_while_both_have_work(pretend: Callable[..., None]) -> None:
    pretend(
        jobs,
        lambda job, _: ends(0.25, 5 * job, 5 * job + 20),  # each at half its speed, the second 5 s later
        run=lambda *_, **__: ends(0.125, 0, 20),
        run_together=lambda *_, **__: [ends(0.5, 0, 20)] * 2,
        outputs_together=outputs_of,
    )
    lane, lanes = (MEASURES[name].function() for name in ("lane_of_resnet50_and_bert", "two_lanes_timeslice"))
    assert lane is not None and lanes is not None
    assert lane["throughput, median"] == pytest.approx(1)
    assert (lanes["Carpool, median"], lanes["without Carpool, median"]) == pytest.approx((1, 0.5))


def test_a_hand_over_is_from_last_kernel_to_first(pretend: Callable[..., None]) -> None:
    def turns(job: int, _: tuple[str, ...]) -> str:
        """By turns, 100 us each, with 40 us in between."""
        return json.dumps([(begin, begin + 100_000) for begin in range(140_000 * job, 140_000 * 1000, 280_000)])

    pretend(handover, turns, outputs_together=outputs_of)
    figures = MEASURES["handover_timeslice"].function()
    assert figures is not None
    assert (figures["us, p50"], figures["us, p95"]) == (40, 40)


def test_jobs_that_never_change_turns_measure_nothing(pretend: Callable[..., None]) -> None:
    never = [json.dumps([(at, at + 1) for at in range(begin, begin + 1000, 2)]) for begin in (0, 10**6)]
    pretend(handover, lambda job, _: never[job % 2], outputs_together=outputs_of)
    with pytest.raises(AssertionError, match=r"changed turns \d+ times only"):
        MEASURES["handover_timeslice"].function()


def test_fairness_is_counted_from_arrival_to_arrival(pretend: Callable[..., None]) -> None:
    pretend(
        fairness,
        lambda job, _: ends(0.5 if job else 0.25, 15 * job, 15 * job + 45),
        spaced=lambda submit, count, _: [submit() for _ in range(count)],
    )
    figures = MEASURES["fairness"].function()
    assert figures is not None
    assert figures == pytest.approx(  # the first one does twice as much as each other
        {
            "phase 2, 2 jobs for 15.0 s": 1 / 3,
            "phase 3, 3 jobs for 15.0 s": 0.5,
            "phase 4, 2 jobs for 15.0 s": 0,
        }
    )


def test_what_lacks_a_package_is_skipped() -> None:
    with pytest.raises(Skip, match="there is no no_such_package here"):
        needs_packages("json", "no_such_package")


def test_without_an_mps_server_it_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Skip, match="there is no nvidia-cuda-mps-control"), mps.mps_server():
        raise AssertionError


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Makes a script the control of MPS servers."""

    def make(text: str) -> None:
        (tmp_path / mps.CONTROL).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / mps.CONTROL).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return make


def test_an_mps_server_lives_as_long_as_it_is_used(
    control: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    control(f'echo "$CUDA_MPS_PIPE_DIRECTORY $*" >> {log}\n[ -n "$1" ] || cat >> {log}')
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    with mps.mps_server():
        directory = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
    assert log.read_text().split() == [directory, "-d", directory, "quit"]
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ


def test_an_mps_server_may_keep_its_output_open(control: Callable[[str], None], tmp_path: Path) -> None:
    os.mkfifo(end := tmp_path / "end")
    control(f'if [ -n "$1" ]; then read line <{end} & else cat >{end}; fi')
    with mps.mps_server():
        pass


def test_an_mps_server_that_does_not_start_is_told_to_quit(control: Callable[[str], None], tmp_path: Path) -> None:
    log = tmp_path / "log"
    control(f'[ -z "$1" ] || {{ echo "no rights" >&2; exit 1; }}\ncat >{log}')
    with pytest.raises(Skip, match="no rights"), mps.mps_server():
        raise AssertionError
    assert log.read_text() == "quit\n"
