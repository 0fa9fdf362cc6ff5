"""The formula, against bytes counted by hand, and the estimate of the history."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.estimate import ESTIMATORS
from carpool.estimate.auto import HistoryEstimator
from carpool.estimate.base import CannotEstimate, Run, Subject
from carpool.estimate.horus import CONTEXT_BYTES, Horus, walk
from carpool.protocol.estimates import AT_SUBMISSION, NAMES

NETS = """
from torch import nn
def mlp(): return nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 10))
def tokens(): return nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50))
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "nets.py").write_text(NETS)
    return tmp_path


def subject(directory: Path, optimizer: str = "adam", **changes: object) -> Subject:
    facts: dict[str, object] = {"model": "nets.py:mlp", "batch_size": 32, "input_shapes": ((100,),)}
    return Subject(directory=str(directory), optimizer=optimizer, **facts | changes)  # type: ignore[arg-type]


def test_a_multilayer_perceptron_by_hand(directory: Path) -> None:
    weights = 4 * (100 * 200 + 200 + 200 * 10 + 10)
    outputs = 4 * 32 * (200 + 200 + 10)
    for optimizer, copies in (("sgd", 0), ("sgd,momentum=0.9", 1), ("adam", 2)):
        found = Horus().estimate(subject(directory, optimizer))
        assert found.persistent == weights * (1 + copies)
        assert found.ephemeral == weights + outputs + 4 * 32 * 100


def test_a_gpu_takes_a_context(directory: Path) -> None:
    host, cuda = (Horus().estimate(subject(directory, device=device)) for device in ("host", "cuda"))
    assert cuda.persistent - host.persistent == CONTEXT_BYTES


def test_models_that_begin_with_an_embedding_get_tokens(directory: Path) -> None:
    found = walk(subject(directory, model="nets.py:tokens", input_shapes=((16,),)))
    assert found.input_bytes == 8 * 32 * 16
    assert found.layers == {"Embedding": 1, "Linear": 1}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"model": "nets.py"}, "a module and a function"),
        ({"model": "nets.py:cnn"}, "no function cnn"),
        ({"model": "other.py:cnn"}, "FileNotFoundError"),
        ({"batch_size": None}, "input is not known"),
        ({"input_shapes": ((99,),)}, "does not run on the meta device"),
        ({"optimizer": "lbfgs"}, "lbfgs"),
    ],
)
def test_what_is_wrong_is_said(directory: Path, changes: dict[str, object], text: str) -> None:
    with pytest.raises(CannotEstimate, match=text):
        Horus().estimate(subject(directory, **changes))  # type: ignore[arg-type]


RUNS = st.lists(st.builds(Run, st.integers(0, 1 << 40), st.integers(0, 1 << 40)), min_size=1, max_size=30)


@given(RUNS)
def test_most_runs_got_by_with_it(runs: list[Run]) -> None:
    found = HistoryEstimator().estimate(Subject(history=tuple(runs)))
    assert sum(run.persistent <= found.persistent for run in runs) >= 0.95 * len(runs)
    assert sum(run.ephemeral <= found.ephemeral for run in runs) >= 0.95 * len(runs)
    assert found.low <= found.total <= found.high


def test_one_odd_run_in_twenty_does_not_count() -> None:
    runs = (*[Run(100, 10)] * 19, Run(5000, 10))
    found = HistoryEstimator().estimate(Subject(history=runs))
    assert (found.persistent, found.ephemeral, found.high) == (100, 10, 5010)


def test_without_runs_it_says_so() -> None:
    with pytest.raises(CannotEstimate, match="no earlier run"):
        HistoryEstimator().estimate(Subject(command=("python", "train.py")))


def test_the_names_are_the_same_on_both_sides() -> None:
    assert tuple(ESTIMATORS) == NAMES
    assert set(AT_SUBMISSION) == set(NAMES) - {"history"}
