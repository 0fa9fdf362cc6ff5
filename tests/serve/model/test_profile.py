"""The order is that of use: of operations, not of modules or names."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from carpool.serve.model import skeleton
from carpool.serve.model.profile import measure
from carpool.serve.plan.grouping import LinkCost
from carpool.serve.plan.manifest import Profile
from tests.serve import zoo


def profiled(module: nn.Module, x: Tensor) -> tuple[Profile, dict[str, int]]:
    """The profile, and which storage a name is in."""
    storages = skeleton.storages(module.eval().requires_grad_(False))
    places = {name: index for index, storage in enumerate(storages) for name in storage.names}
    return measure(module, (x,), storages, "key", LinkCost(1000, 1 << 30)), places


class Backwards(nn.Module):
    """Modules are used in the opposite order of their names, one twice, and one's weight by a function."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(8, 8)
        self.third = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.first = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x))
        return nn.functional.linear(self.first(x), self.third.weight)


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
