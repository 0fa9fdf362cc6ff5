"""Models on a GPU, as far as that can be tried without one: with memory of the host, into which weights come late."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

import pytest

from carpool.devices import memfd
from carpool.serve.model.native_groups import CopyStopped
from carpool.serve.model.weights_device import WeightsMemory
from tests.serve.conftest import Prepare
from tests.serve.model.test_bound_model import MODELS
from tests.tiers import all_but_first


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global torch, torch_device, BoundModel, NoGpu, OnGpu, OnHost, where
    global same_bits, zoo, STREAM, LateGroups, stand_in, alone
    import torch

    from carpool.serve.model import torch_device
    from carpool.serve.model.bound_model import BoundModel
    from carpool.serve.model.torch_device import NoGpu, OnGpu, OnHost, where
    from carpool.serve.prepare.prepare import same_bits
    from tests.serve import zoo
    from tests.serve.late import STREAM, LateGroups, stand_in
    from tests.serve.model.modules import alone


OPAQUE = {"traced"}


@pytest.fixture
def late(
    request: pytest.FixtureRequest, prepare_once: Prepare, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[BoundModel, LateGroups]]:
    """The model, and its weights that are not there."""
    entry, image, _ = prepare_once(request.param)
    stand_in(monkeypatch)
    header, memory = memfd.create("header", memfd.PAGE, sealed=True), torch.empty(entry.device_bytes, dtype=torch.uint8)
    model = BoundModel(entry, image, WeightsMemory(header, memory.data_ptr()))
    assert isinstance(model.groups, LateGroups)
    yield model, model.groups
    model.close()
    os.close(header)


def name_of(model: BoundModel) -> str:
    return model.entry.source.factory.partition(":")[2]


@pytest.mark.parametrize("late", all_but_first(MODELS, stay=8), indirect=True)
def test_cold_and_warm(late: tuple[BoundModel, LateGroups]) -> None:
    """No operation sees anything but weights, and answers are those of the model alone."""
    model, groups = late
    name = name_of(model)
    inputs = (zoo.INPUTS[name](),)
    for expected in alone(name, inputs, inputs):
        assert groups.there == 0
        assert same_bits(model(*inputs), expected)
        assert bool(groups.followed) == (name not in OPAQUE)
        groups.drop()
    groups.wait()
    warm = alone(name, inputs, inputs, inputs)[-1]
    assert same_bits(model(*inputs), warm)
    assert not groups.followed, "a ready model is plain PyTorch"


@pytest.mark.parametrize("late", ["brain"], indirect=True)
def test_layers_compute_before_the_last_group_is_there(late: tuple[BoundModel, LateGroups]) -> None:
    model, groups = late
    model(zoo.INPUTS["brain"]())
    assert groups.followed == [(count, STREAM) for count in range(1, groups.count + 1)]


@pytest.mark.parametrize("late", ["branching"], indirect=True)
def test_what_the_profile_has_not_seen(late: tuple[BoundModel, LateGroups]) -> None:
    model, groups = late
    other = (-zoo.INPUTS["branching"](),)
    assert same_bits(model(*other), alone("branching", other)[0])
    assert groups.followed


@pytest.mark.parametrize("late", ["brain", "traced"], indirect=True)
def test_nobody_brings_the_weights(late: tuple[BoundModel, LateGroups]) -> None:
    model, groups = late
    groups.stopped = True
    with pytest.raises(CopyStopped):
        model(zoo.INPUTS[name_of(model)]())


@pytest.mark.parametrize("late", ["rotary"], indirect=True)
def test_bound_to_another_address(late: tuple[BoundModel, LateGroups]) -> None:
    """The header's file may be the same."""
    model, groups = late
    inputs = (zoo.INPUTS["rotary"](),)
    header = memfd.create("header", memfd.PAGE, sealed=True)
    pieces = [torch.empty(model.entry.device_bytes, dtype=torch.uint8) for _ in range(2)]
    for piece in pieces:
        model.bind(WeightsMemory(header, piece.data_ptr()))
        assert model.groups is not groups
        groups = model.groups
        model.bind(WeightsMemory(header, piece.data_ptr()))
        assert model.groups is groups
        assert same_bits(model(*inputs), alone("rotary", inputs)[0])
    os.close(header)


def test_which_device() -> None:
    assert where(None).device == torch.device("cpu")
    assert where(4096).device == torch.device("cuda:0")


def test_memory_of_a_gpu_as_pytorch_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr(torch, "as_tensor", lambda given, device: taken.append((given, device)))
    OnGpu().memory(1 << 40, 12)
    ((given, device),) = taken
    assert device == torch.device("cuda:0")
    assert given.__cuda_array_interface__ == {"shape": (12,), "typestr": "|u1", "data": (1 << 40, False), "version": 3}


@pytest.mark.parametrize("why", ["cannot use the GPU", r"lacks numpy: .* -m pip install numpy$"])
def test_a_job_on_a_gpu_that_lacks_what_it_needs(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """On a host device nobody needs it."""
    if "numpy" in why:
        monkeypatch.setattr(importlib.util, "find_spec", {"numpy": None}.get)
    else:
        monkeypatch.setattr(OnGpu, "device", torch.device("cuda", 4711))
    torch_device.begin()
    monkeypatch.setenv("CARPOOL_CUDA_DEVICE", "GPU-1")
    with pytest.raises(NoGpu, match=why):
        torch_device.begin()


def test_a_context_that_is_spoiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def synchronize() -> None:
        raise RuntimeError("device-side assert triggered")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    with pytest.raises(NoGpu, match="device-side assert"):
        OnGpu().check()
    OnHost().check()
