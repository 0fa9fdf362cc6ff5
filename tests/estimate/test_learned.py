"""The shipped weights, without the figures that they were learned from."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.core.model import MIB
from carpool.estimate import learned
from carpool.estimate.base import CannotEstimate, Features, Subject
from carpool.estimate.learned import FILE, Learned, trees
from carpool.estimate.learned.trees import LEVELS, DamagedWeights, level_of, numbers

GIB = 1024 * MIB
#: resnet50 of timm at a batch of 32: what its layers are, and about what fake tensors say of it.
RESNET50 = Features(
    batch_size=32,
    parameter_bytes=102_228_128,
    buffer_bytes=212_904,
    gradient_bytes=102_228_128,
    optimizer_bytes=0,
    activation_bytes=2_700 * MIB,
    input_bytes=32 * 3 * 224 * 224 * 4,
    peak_forward_bytes=2_700 * MIB,
    peak_backward_bytes=2_725 * MIB,
    layers={"Conv2d": 53, "BatchNorm2d": 53, "Linear": 1, "ReLU": 49, "Identity": 70},
)
PEAKS_ONLY = replace(RESNET50, parameter_bytes=0, layers={})
RECORDED = json.loads((Path(__file__).parent / "data" / "recorded.json").read_text())


def shipped_text() -> str:
    return resources.files("carpool.estimate.learned.weights").joinpath(FILE).read_text()


def on_gpu(features: Features) -> Subject:
    return Subject(features=features, device="cuda")


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["name"])
def test_recorded_predictions(case: dict[str, object]) -> None:
    """Written by ``python -m tests.estimate.record`` when the weights were: nobody changes one without the other."""
    found = Learned().estimate(on_gpu(Features(**case["features"])))  # type: ignore[arg-type]
    assert [found.persistent, found.ephemeral, found.low, found.high] == case["bytes"]


def test_the_estimate_lies_in_its_range_and_says_what_it_knows() -> None:
    found = Learned().estimate(on_gpu(RESNET50))
    assert found.low <= found.total <= found.high
    assert (found.source, found.how) == (
        "learned", "learned from runs on an A100, by peaks of a rehearsal, weights and layers",
    )  # fmt: skip
    assert found.low > (RESNET50.peak_backward_bytes or 0)
    # CARMA's catalogue has 3,934 MiB for it, of another script; docs/estimates.md says what that means.
    assert found.total < 1.5 * 3_934 * MIB
    assert found.persistent >= RESNET50.parameter_bytes


@pytest.mark.parametrize(
    ("features", "level"),
    [
        (RESNET50, "layers"),
        (replace(RESNET50, layers={}), "parameters"),
        (replace(RESNET50, input_bytes=0), "parameters"),
        (PEAKS_ONLY, "peaks"),
        (replace(RESNET50, peak_backward_bytes=None), None),
        (replace(RESNET50, batch_size=0), None),
    ],
)
def test_the_most_that_is_known_is_used(features: Features, level: str | None) -> None:
    assert level_of(features) == level


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_has_as_many_numbers_as_its_trees_expect(level: str) -> None:
    assert len(numbers(RESNET50, level)) == learned._WIDTHS[level]


def test_a_forward_peak_is_not_needed() -> None:
    assert Learned().estimate(on_gpu(replace(PEAKS_ONLY, peak_forward_bytes=None))).total > GIB


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        (Subject(features=RESNET50), "for GPUs"),
        (Subject(device="cuda"), "rehearsal"),
        (on_gpu(replace(RESNET50, peak_backward_bytes=None)), "rehearsal"),
    ],
    ids=["the host has no context", "without a rehearsal", "without its peak"],
)
def test_where_nothing_learned_applies_there_is_no_estimate(subject: Subject, why: str) -> None:
    with pytest.raises(CannotEstimate, match=why):
        Learned().estimate(subject)


sizes = st.integers(min_value=1, max_value=1 << 40)


@given(
    batch=st.integers(1, 4096), weights=st.integers(0, 1 << 36), forward=st.none() | sizes, backward=sizes,
    layers=st.dictionaries(st.sampled_from(["Conv2d", "Linear", "GELU"]), st.integers(1, 500)),
)  # fmt: skip
def test_any_job_gets_an_estimate_in_its_range(
    batch: int, weights: int, forward: int | None, backward: int, layers: dict[str, int]
) -> None:
    features = Features(batch, weights, 0, weights, 0, 0, batch * 4, forward, backward, layers)
    found = Learned().estimate(on_gpu(features))
    assert 0 < found.low <= found.high and found.total <= found.high
    assert found.persistent >= 0 and found.ephemeral >= 0


@pytest.mark.parametrize("features", [RESNET50, PEAKS_ONLY], ids=["layers", "peaks"])
def test_twice_the_activations_need_more(features: Features) -> None:
    grows = ("batch_size", "input_bytes", "peak_forward_bytes", "peak_backward_bytes")

    def times(factor: int) -> Features:
        return replace(features, **{name: (getattr(features, name) or 0) * factor for name in grows})

    found = [Learned().estimate(on_gpu(times(factor))) for factor in (1, 2, 4)]
    assert found[0].total < found[1].total < found[2].total
    assert found[0].high < found[1].high < found[2].high


def test_state_of_the_optimizer_beyond_that_of_the_measured_runs_is_added() -> None:
    adam = replace(RESNET50, optimizer_bytes=2 * RESNET50.parameter_bytes)
    plain, more = (Learned().estimate(on_gpu(each)) for each in (RESNET50, adam))
    assert more.total - plain.total == RESNET50.parameter_bytes == more.high - plain.high


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"levels": {}}', "null", shipped_text()[:-99], shipped_text().replace("margin", "margins", 1)],
    ids=["empty", "list", "nothing", "no level", "null", "cut off", "renamed"],
)  # fmt: skip
def test_damaged_weights_are_refused_by_name(text: str) -> None:
    with pytest.raises(DamagedWeights, match=FILE):
        learned.parse(text)


def test_people_are_told_of_damaged_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged() -> learned.Weights:
        return learned.parse(shipped_text()[:500])

    monkeypatch.setattr(learned, "shipped", damaged)
    with pytest.raises(CannotEstimate, match=r"learned.json is damaged") as refusal:
        Learned().estimate(on_gpu(RESNET50))
    assert refusal.value.hint == "install carpool again"


def test_the_weights_are_small_and_name_their_source() -> None:
    assert len(shipped_text()) < 1_000_000
    assert "A100" in json.loads(shipped_text())["source"]


def test_nothing_but_the_standard_library_is_loaded(python: str) -> None:
    code = (
        "import sys, carpool.estimate.auto, carpool.estimate.learned as l; l.shipped(); "
        "print({'numpy', 'torch', 'sklearn', 'msgspec'} & set(sys.modules))"
    )
    assert subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_kinds_of_layers_are_counted_by_part_of_their_name() -> None:
    layers = {"Conv2d": 3, "Conv2dSame": 2, "LayerNorm2d": 4, "BatchNorm2d": 5, "SyncBatchNorm": 1}
    assert [trees.count_of(layers, kind) for kind in trees.KINDS] == [5, 0, 4, 6]
