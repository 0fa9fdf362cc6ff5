"""Operations come after the groups that their tensors lie in; with tensors of the host instead of a GPU's."""

from __future__ import annotations

from typing import Any

import pytest

from carpool.serve.model.native_groups import CopyStopped


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global torch, Tensor, nn, Following, is_opaque, same_bits, zoo, Ops
    import torch
    from torch import Tensor, nn

    from carpool.serve.model.torch_device import Following, is_opaque
    from carpool.serve.prepare.prepare import same_bits
    from tests.serve import zoo
    from tests.serve.model.modules import Ops


#: Of groups with 16 numbers each; the third one is empty.
BOUNDS = (64, 128, 192, 192, 256)


class Asked:
    """Stands in for `Groups`: notes what it is asked for."""

    def __init__(self) -> None:
        self.memory = torch.zeros(BOUNDS[-1] // 4 + 16)
        self.address = self.memory.data_ptr()
        self.bounds, self.count = BOUNDS, len(BOUNDS) - 1
        self.followed: list[tuple[int, int]] = []
        self.error: Exception | None = None
        self.guarded = self.within = False

    def follow(self, count: int, stream: int) -> None:
        if self.error:
            raise self.error
        self.followed.append((count, stream))

    def guard(self, on: bool) -> None:
        self.guarded = on

    def operation(self, begins: bool) -> None:
        assert begins != self.within, "one after another"
        self.within = begins

    def weight(self, offset: int) -> Tensor:
        """16 numbers, in a storage of their own."""
        return torch.frombuffer((torch.ctypes.c_char * 64).from_address(self.address + offset), dtype=torch.float32)


@pytest.fixture
def groups() -> Asked:
    return Asked()


@pytest.fixture
def weights(groups: Asked) -> list[Tensor]:
    """One in each group."""
    return [groups.weight(offset) for offset in (64, 128, 192)]


def following(groups: Any, stream: int = 1) -> Following:
    return Following(groups, lambda: stream)


def test_what_is_no_operation_is_left_to_the_gate(groups: Asked, weights: list[Tensor]) -> None:
    """Which waits for all groups unless a thread is within an operation."""
    seen = []
    with following(groups) as mode:
        assert groups.guarded and not groups.within
        weights[0] + 1
        mode._groups.follow = lambda count, stream: seen.append(groups.within)
        weights[1] + 1
        with pytest.raises(RuntimeError):
            weights[0] @ torch.ones(3)
        assert groups.guarded and not groups.within
    assert seen == [False] and not groups.guarded


def test_each_group_once_and_only_when_it_is_needed(groups: Asked, weights: list[Tensor]) -> None:
    first, second, last = weights
    own = torch.ones(16)
    with following(groups):
        own * 2
        assert groups.followed == []
        first + own
        first * 2
        assert groups.followed == [(1, 1)]
        own + last
        assert groups.followed == [(1, 1), (4, 1)]
        second + 1  # came before the last one
    assert groups.followed == [(1, 1), (4, 1)]


@pytest.mark.parametrize(
    "use",
    [
        lambda a, b: torch.cat([a, b]),
        lambda a, b: torch.stack((b, a)),
        lambda a, b: torch.add(a, 1, out=torch.empty(16)).add_(b),
        lambda a, b: torch.where(a > 0, input=a, other=b),
        lambda a, b: torch.neg(a, out=b),
        lambda a, b: torch._foreach_add([a, a], [a, b]),
        lambda a, b: b.view(4, 4).t()[1:],
        lambda a, b: b.to(torch.float64),
        lambda a, b: b.sum().item(),
        lambda a, b: b.to_sparse(),
        lambda a, b: torch.func.vmap(lambda x: x + b)(torch.ones(2, 16)),
    ],
)
def test_wherever_tensors_are(use: Any, groups: Asked, weights: list[Tensor]) -> None:
    """Views of weights lie where they do, and an operation needs the last of its groups."""
    with following(groups):
        use(weights[0], weights[1])
    assert max(count for count, _ in groups.followed) == 2


def test_views_that_were_made_before(groups: Asked, weights: list[Tensor]) -> None:
    view = weights[1].view(4, 4)[2]
    with following(groups):
        view.sum()
    assert groups.followed == [(2, 1)]


def test_what_lies_beside_the_weights(groups: Asked) -> None:
    """The header, and what comes behind the last group."""
    before, behind = groups.weight(0), groups.weight(BOUNDS[-1])
    with following(groups):
        before + behind
    assert groups.followed == []


def test_every_stream_follows_for_itself(groups: Asked, weights: list[Tensor]) -> None:
    streams = iter([1, 2, 2, 1, 2])
    with Following(groups, lambda: next(streams)):  # type: ignore[arg-type]
        for weight in (weights[1], weights[0], weights[2], weights[0], weights[2]):
            weight.neg()
    assert groups.followed == [(2, 1), (1, 2), (4, 2)]


def test_functions_that_run_inside_of_an_operation_need_everything(groups: Asked, weights: list[Tensor]) -> None:
    own = torch.ones(16)
    with following(groups):
        torch.ops.higher_order.cond(torch.tensor(True), lambda x: x + weights[0], torch.neg, (own,))
    assert groups.followed[0] == (4, 1)


def test_nobody_brings_them(groups: Asked, weights: list[Tensor]) -> None:
    groups.error = CopyStopped()
    with following(groups), pytest.raises(CopyStopped):
        weights[0] + 1
    with following(groups):
        torch.ones(3) + 1


@pytest.mark.parametrize("fast", ["aten::_transformer_encoder_layer_fwd", "aten::_native_multi_head_attention"])
def test_fast_paths_stay_what_they_are(fast: str, groups: Asked) -> None:
    """With the mode as without it, to the last bit.  (A mode of functions leaves them: record 33.)"""
    torch.manual_seed(1)
    x = torch.rand(2, 8, zoo.WIDTH)
    if "encoder" in fast:
        module: nn.Module = nn.TransformerEncoderLayer(zoo.WIDTH, 4, 2 * zoo.WIDTH, batch_first=True)
        inputs = (x,)
    else:
        module, inputs = nn.MultiheadAttention(zoo.WIDTH, 4, batch_first=True), (x, x, x)
    module.eval().requires_grad_(False)
    with torch.inference_mode():
        plain = module(*inputs)
        with Ops() as ops, following(groups):
            followed = module(*inputs)
    assert same_bits(followed, plain)
    assert fast in ops.names


def test_code_that_no_mode_sees_into() -> None:
    plain = nn.Sequential(nn.Linear(3, 3))
    assert not is_opaque(plain)
    assert is_opaque(nn.Sequential(zoo.traced()))
    assert is_opaque(nn.Sequential(torch.compile(nn.Linear(3, 3))))
    plain[0].compile()
    assert is_opaque(plain)
