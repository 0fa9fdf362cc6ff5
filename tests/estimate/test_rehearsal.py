"""Rehearsals of small loops, against bytes counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.estimate.rehearsal.arenas import GRAIN, PAGE
from tests.examples import examples


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global torch, nn, Rehearsal, rehearse, STEPS
    import torch
    from torch import nn

    from carpool.estimate.rehearsal.rehearsal import Rehearsal, rehearse
    from carpool.estimate.rehearsal.watch import STEPS


BATCH, INPUTS, CLASSES = 64, 1024, 512  # every tensor is whole grains
LIMIT_S = 360.0


def training(width: int, optimizer: str = "SGD", **settings: float) -> Rehearsal:
    def play() -> None:
        model = nn.Sequential(nn.Linear(INPUTS, width, bias=False), nn.ReLU(), nn.Linear(width, CLASSES, bias=False))
        update = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1, **settings)
        inputs = torch.zeros(BATCH, INPUTS)
        while True:
            update.zero_grad()
            model(inputs).sum().backward()
            update.step()

    return rehearse(play, LIMIT_S)


def weights(width: int) -> int:
    return 4 * width * (INPUTS + CLASSES)


def test_sgd_keeps_the_weights_and_the_data() -> None:
    seen = training(256)
    assert (seen.error, seen.steps) == (None, STEPS)
    assert seen.persistent == -(-(weights(256) + 4 * BATCH * INPUTS) // PAGE) * PAGE
    assert (seen.features.parameter_bytes, seen.features.gradient_bytes) == (weights(256), weights(256))
    assert (seen.features.optimizer_bytes, seen.features.batch_size) == (0, BATCH)


def test_momentum_and_adam_keep_their_state() -> None:
    momentum, adam = training(256, momentum=0.9), training(256, "Adam")
    assert momentum.persistent - training(256).persistent == weights(256)
    assert momentum.features.optimizer_bytes == weights(256)
    assert adam.features.optimizer_bytes == 2 * weights(256) + 2 * 4  # and two step counters
    # The first step's temporaries lie in persistent memory, too: no more than two of the largest weight at a time.
    extra = adam.persistent - training(256).persistent - 2 * weights(256)
    assert 0 <= extra <= 2 * 4 * 256 * INPUTS + PAGE


def test_the_peak_is_in_the_backward_pass() -> None:
    """Kept for it: the layer's output after ReLU; alive at its end: gradients of both weights and of one output."""
    seen = training(256)
    assert seen.features.activation_bytes == 4 * BATCH * (256 + CLASSES)
    at_least = weights(256) + 4 * BATCH * 256
    assert at_least <= seen.ephemeral <= at_least + 3 * 4 * BATCH * (256 + CLASSES) + 8 * GRAIN


@settings(max_examples=examples(8, fewer=4), deadline=None)
@given(st.integers(1, 40), st.integers(1, 40))
def test_wider_needs_no_less(width: int, more: int) -> None:
    narrow, wide = training(64 * width), training(64 * (width + more))
    assert narrow.persistent < wide.persistent
    assert narrow.ephemeral < wide.ephemeral


def test_nothing_is_allocated() -> None:
    """Four hundred gigabytes of weights, on any machine."""

    def play() -> None:
        model = nn.Linear(1 << 19, 200_000, bias=False)
        update = torch.optim.SGD(model.parameters(), lr=0.1)
        while True:
            update.zero_grad()
            model(torch.zeros(8, 1 << 19)).sum().backward()
            update.step()

    assert rehearse(play, LIMIT_S).persistent > 4 * (1 << 19) * 200_000


def test_small_numbers_are_real_and_others_made_up() -> None:
    """Indices, orders and counters are computed; what depends on the model is 1."""
    seen = {}

    def play() -> None:
        starts = torch.tensor([3, 5]) * 2
        seen["slice"] = torch.zeros(100)[starts[0] : starts[1]].shape[0]
        seen["order"] = sorted(torch.randperm(5).tolist())
        model = nn.Linear(4, 4)
        seen["loss"] = model(torch.zeros(2, 4)).sum().item()
        torch.optim.SGD(model.parameters(), lr=0.1).step()

    assert rehearse(play, LIMIT_S).error is None
    assert seen == {"slice": 4, "order": [0, 1, 2, 3, 4], "loss": 1.0}


def test_data_loaders_run_here_and_nothing_is_saved(tmp_path: Path) -> None:
    def play() -> None:
        data = torch.utils.data.TensorDataset(torch.zeros(64, 8), torch.zeros(64, dtype=torch.int64))
        model = nn.Linear(8, 4)
        update = torch.optim.SGD(model.parameters(), lr=0.1)
        for inputs, labels in torch.utils.data.DataLoader(data, batch_size=16, shuffle=True, num_workers=2):
            nn.functional.cross_entropy(model(inputs), labels).backward()
            update.step()
        torch.save(model.state_dict(), tmp_path / "weights.pt")

    seen = rehearse(play, LIMIT_S)
    assert (seen.error, seen.steps, seen.features.batch_size) == (None, 4, 16)
    assert not list(tmp_path.iterdir())


def test_an_error_of_the_script_is_told_and_the_hooks_are_gone() -> None:
    def play() -> None:
        raise ValueError("no such data set")

    seen = rehearse(play, LIMIT_S)
    assert isinstance(seen.error, ValueError)
    assert seen.steps == 0
    model = nn.Linear(2, 2)
    for _ in range(STEPS + 1):  # one more than a rehearsal has
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert torch.zeros(3).tolist() == [0.0, 0.0, 0.0]
