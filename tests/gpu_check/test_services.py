"""The measurements of services, with a small model on a host device in the GPU's place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest

from tools.gpu_check import runner
from tools.gpu_check.measurements.services import MODELS


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global serving
    from tools.gpu_check import serving


BOUNDS_US = (1000, 0)


@pytest.fixture(scope="module")
def on() -> Iterator[serving.Stage]:
    with serving.stage("small", serving.Place("host:256MiB", "cpu")) as stage:
        yield stage


def test_every_model_has_a_measurement() -> None:
    assert {*(f"serving_{model}" for model in MODELS), "serving_run_ahead"} <= set(runner.load())


@pytest.mark.nightly(
    "a benchmark or measurement in its smallest form: seconds to minutes",
    stays="tests/benchmarks/test_serving.py::test_each_cycle_is_measured",
)
def test_requests_are_measured_in_every_way(on: serving.Stage) -> None:
    figures = serving.ways(on, rounds=1, starts=1)
    assert all(figures[f"{way} / {base}"] > 0 for way, base in serving.BASES.items())
    assert figures["ready, request to first layer, ms"] > 0


@pytest.mark.nightly(
    "a benchmark or measurement in its smallest form: seconds to minutes",
    stays="tests/benchmarks/test_serving.py::test_each_cycle_is_measured",
)
def test_the_bound_of_run_ahead_is_set_for_each_row(on: serving.Stage) -> None:
    figures = serving.run_ahead(on, BOUNDS_US, asks=1, seconds=0.5)
    beside = [figures[f"{bound} us: training beside 20 requests/s, iterations/s"] for bound in BOUNDS_US]
    assert min(beside) > 0
    assert on.served.client.policy().settings["run_ahead_us"] == BOUNDS_US[-1]


@pytest.mark.nightly(
    "a benchmark or measurement in its smallest form: seconds to minutes",
    stays="tests/benchmarks/test_serving.py::test_each_cycle_is_measured",
)
def test_weights_that_did_not_leave_are_no_cold_request(on: serving.Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "drop_weights", lambda _: None)
    with pytest.raises(AssertionError, match=r"cold: 0 of \d+ bytes of weights came"):
        serving.ways(on, rounds=1, starts=0)


@pytest.mark.nightly(
    "a benchmark or measurement in its smallest form: seconds to minutes",
    stays="tests/benchmarks/test_serving.py::test_each_cycle_is_measured",
)
def test_private_memory_of_workers_is_measured(on: serving.Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert serving.private_memory(on.served, "small", asks=1)["RssAnon before, MiB"] > 10
    memory = iter([{1: 5 << 20}, {1: 7 << 20}])
    monkeypatch.setattr(serving, "_anonymous", lambda _: next(memory))
    assert serving.private_memory(on.served, "small", asks=1)["RssAnon more, MiB"] == 2


def test_figures_are_medians_against_their_base() -> None:
    taken: serving.Taken = defaultdict(lambda: [1.0])
    taken |= {"ready": [0.01, 0.02, 0.03], "preempting": [0.021, 0.022, 0.5], "cold: first layer": [1.002]}
    figures = serving.figures_of(taken)
    assert figures["preempting, ms more than ready"] == pytest.approx(2)
    assert figures["preempting / ready"] == pytest.approx(1.1)
    assert figures["cold, first layer later than ready, ms"] == pytest.approx(2)
