"""Structure without weights is the same structure, costs no memory, and what cannot be served is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.serve.names import NAMES


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global torch, Tensor, nn, skeleton, Unusable, zoo, Odd
    import torch
    from torch import Tensor, nn

    from carpool.serve.model import skeleton
    from carpool.serve.model.skeleton import Unusable
    from tests.serve import zoo
    from tests.serve.model.modules import Odd


LARGE = 4096


def wide() -> nn.Module:
    """512 MiB, with initial values as modules and model libraries write them."""
    model = nn.Sequential(nn.Linear(LARGE, LARGE), nn.Embedding(LARGE, LARGE), nn.Conv2d(LARGE, LARGE, 1))
    model.append(nn.Linear(LARGE, LARGE))
    model.append(nn.Bilinear(1, LARGE, LARGE))
    nn.init.trunc_normal_(model[0].weight, std=0.02)
    model[1].weight.data.normal_(0, 0.02)
    nn.init.xavier_uniform_(model[2].weight)
    nn.init.zeros_(model[3].bias)
    return model


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize("name", [name for name in NAMES if name != "refusing"])
def test_the_same_structure_with_and_without_weights(name: str) -> None:
    parts = [skeleton.storages(skeleton.build(getattr(zoo, name), 7, weights=w)) for w in (True, False)]
    assert skeleton.signature(parts[0]) == skeleton.signature(parts[1])


def test_structure_costs_no_memory() -> None:
    before = resident_bytes()
    module = skeleton.build(wide, 0, weights=False)
    grown = resident_bytes() - before
    total = sum(storage.size for storage in skeleton.storages(module))
    assert total > 256 << 20
    assert grown < total // 2  # temporaries may be kept for later


def test_a_build_leaves_nothing_behind() -> None:
    """Neither the random numbers of others nor what they build afterwards is touched, whatever a factory does."""
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    skeleton.build(zoo.rotary, 7, weights=False)
    with pytest.raises(ZeroDivisionError):
        skeleton.build(lambda: 1 // 0, 7, weights=False)  # type: ignore[arg-type, return-value]
    assert torch.equal(torch.rand(4), expected)
    assert nn.Linear(300, 300).weight.abs().sum() > 0


def test_ready_to_compute() -> None:
    module = skeleton.build(zoo.residual, 7, weights=False)
    assert not any(part.training for part in module.modules())
    assert not any(parameter.requires_grad for parameter in module.parameters())


def test_binding_keeps_the_tensors() -> None:
    module = skeleton.build(zoo.tied, 7, weights=True)
    kept, values = module.word.weight, module.word.weight.clone()
    for storage in skeleton.storages(module):
        skeleton.bind(storage, skeleton.memory_of(storage).clone())
    assert module.word.weight is kept is module.head.weight
    assert torch.equal(kept, values)


def test_parts_of_one_memory_stay_parts_of_it() -> None:
    module = skeleton.build(zoo.shared, 7, weights=True)
    (storage,) = skeleton.storages(module)
    assert storage.names == ("first", "second")
    values = [tensor.clone() for tensor in storage.tensors]
    memory = skeleton.memory_of(storage).clone()
    skeleton.bind(storage, memory)
    assert all(torch.equal(tensor, value) for tensor, value in zip(storage.tensors, values, strict=True))
    assert {tensor.untyped_storage().data_ptr() for tensor in storage.tensors} == {memory.data_ptr()}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.eye(3).to_sparse(), "x is not a plain tensor"),
        (lambda: torch.zeros(3, device="meta"), "x is not a plain tensor .*meta"),
        (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "x is not a plain tensor"),
        (lambda: torch.zeros(3).as_subclass(Odd), "x is a Odd"),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.quantize:UserWarning")
def test_tensors_that_cannot_be_moved(make: Callable[[], Tensor], message: str) -> None:
    module = nn.Module()
    module.register_buffer("x", make())
    with pytest.raises(Unusable, match=message):
        skeleton.storages(module)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("tests.serve.zoo", "write module:function"),
        (":x", "write module:function"),
        ("tests.serve.zoo:", "write module:function"),
        ("tests.serve.gone:x", r"cannot be imported: /.* lacks tests\.serve\.gone: install it there"),
        ("tests.serve.zoo:gone", "no function 'gone'"),
        ("tests.serve.zoo:WIDTH", "no function 'WIDTH'"),
        ("tests.serve.zoo:not_a_module", "must return a torch.nn.Module, not a int"),
        ("tests.serve.zoo:lazy", "must run a lazy module once"),
        ("tests.serve.zoo:on_meta", "build the model there"),
    ],
)
def test_factories_that_make_no_model(factory: str, message: str) -> None:
    with pytest.raises(Unusable, match=message):
        skeleton.storages(skeleton.build(skeleton.resolve(factory), 0, weights=True))
