"""The simulations of services: they run, and their models are the published ones."""

from __future__ import annotations

import pytest

from benchmarks import bench_services_cycles, bench_services_many, bench_services_training
from benchmarks.served import networks, poisson, salus
from carpool.core.model import GIB


def test_the_models() -> None:
    kinds = salus()
    assert (len(kinds), len({kind.name for kind in kinds})) == (42, 42)
    assert 9.8 * GIB < sum(kind.weights for kind in kinds) < 10 * GIB
    resnet = next(kind for kind in kinds if kind.name == "resnet50_10")
    # 125.366 ms for 25 pictures and 225.722 ms for 50: a line, at 10 pictures, of which a third is the forward pass.
    assert resnet.compute_us == pytest.approx((125_366 - 15 * (225_722 - 125_366) / 25) / 3, abs=1)
    assert next(kind for kind in kinds if kind.name == "vae_5").compute_us == 10_000
    assert [kind.name for kind in networks()] == ["ResNet-152", "Inception-v3", "BERT-base"]


def test_arrivals_are_as_dense_as_the_load_says() -> None:
    kinds = salus()
    arrivals = poisson(kinds, [1.0] * 42, 0.5, 20_000)
    computing = sum(kind.compute_us * len(times) for kind, times in zip(kinds, arrivals, strict=True))
    assert computing / max(times[-1] for times in arrivals) == pytest.approx(0.5, rel=0.05)


def test_many_models() -> None:
    figures = bench_services_many.run(quick=True)
    assert [figure.met for figure in figures if figure.target is not None] == [True] * 3
    assert all(figure.name.startswith("simulated, ") for figure in figures)


def test_training_beside_services() -> None:
    figures = bench_services_training.run(quick=True)
    assert [figure.met for figure in figures] == [True] * 8
    assert figures[0].value == 1.0, "without requests nothing is lost"


def test_cycles() -> None:
    figures = bench_services_cycles.run(quick=True)
    assert [figure.met for figure in figures] == [True, True, None, None]
    short, long, short_as_one, long_as_one = (figure.value for figure in figures)
    assert short_as_one < short < long, "groups hide the copy; fewer switches cost less"
    assert short_as_one < long_as_one < long
