"""The order is that of use: of operations, not of modules or names."""

from __future__ import annotations

import pytest

from carpool.serve.plan.grouping import LinkCost
from carpool.serve.plan.manifest import Profile


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global torch, Tensor, nn, skeleton, measure, zoo, Backwards
    import torch
    from torch import Tensor, nn

    from carpool.serve.model import skeleton
    from carpool.serve.model.profile import measure
    from tests.serve import zoo
    from tests.serve.model.modules import Backwards


def profiled(module: nn.Module, x: Tensor) -> tuple[Profile, dict[str, int]]:
    """The profile, and which storage a name is in."""
    storages = skeleton.storages(module.eval().requires_grad_(False))
    places = {name: index for index, storage in enumerate(storages) for name in storage.names}
    return measure(module, (x,), storages, "key", LinkCost(1000, 1 << 30)), places


def test_the_order_of_use() -> None:
    profile, places = profiled(Backwards(), torch.rand(2, 8))
    order = [set(layer.storages) for layer in profile.layers]
    assert order == [
        {places["first.weight"], places["first.bias"]},
        {places["second.weight"], places["second.bias"]},
        {places["third.weight"]},
        {places["third.bias"], places["unused.weight"], places["unused.bias"]},
    ]
    assert [layer.size for layer in profile.layers] == [288, 288, 256, 320]


def test_every_layer_that_is_used_takes_time() -> None:
    profile, _ = profiled(skeleton.build(zoo.residual, 7, weights=True), zoo.INPUTS["residual"]())
    times = [layer.compute_ns for layer in profile.layers]
    assert all(time > 0 for time in times[:-1])
    assert times[-1] == 0  # counters of batches, which only training uses
    assert profile.total_ns > 0


def test_what_is_written_is_found_and_undone() -> None:
    module = zoo.Counting()
    profile, places = profiled(module, zoo.INPUTS["counting"]())
    assert set(profile.private) == {places["seen"], places["hidden"], places["same"]}
    assert (module.seen.item(), module.hidden.tolist(), module.same.tolist()) == (0, [0] * 4, [1] * 4)


def test_running_averages_are_not_written_when_serving() -> None:
    profile, _ = profiled(skeleton.build(zoo.residual, 7, weights=True), zoo.INPUTS["residual"]())
    assert profile.private == ()


def test_a_model_that_uses_nothing() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(3))

        def forward(self, x: Tensor) -> Tensor:
            return x

    profile, _ = profiled(Idle(), torch.rand(2))
    assert [layer.storages for layer in profile.layers] == [(0,)]
