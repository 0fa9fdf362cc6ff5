"""Outputs are those of the model alone, to the last bit: cold, warm, or half there, whatever the model does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from carpool.devices import memfd
from carpool.protocol.records import decode, encode
from carpool.serve.model.weights_device import WeightsMemory
from carpool.serve.plan.grouping import LinkCost
from carpool.serve.plan.manifest import Layer, Manifest, Profile, Source
from tests.descriptors import descriptors
from tests.serve.conftest import Prepare
from tests.serve.names import NAMES
from tests.tiers import all_but_first


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global torch, skeleton, BoundModel, Inputs, Unusable, GPU_GROUP, Prepared
    global joined, pipelined, prepare, same_bits, zoo, alone
    import torch

    from carpool.serve.model import skeleton
    from carpool.serve.model.bound_model import BoundModel
    from carpool.serve.model.profile import Inputs
    from carpool.serve.model.skeleton import Unusable
    from carpool.serve.prepare.prepare import GPU_GROUP, Prepared, joined, pipelined, prepare, same_bits
    from tests.serve import zoo
    from tests.serve.model.modules import alone


def source(name: str) -> Source:
    return Source(f"tests.serve.zoo:{name}", seed=7)


@pytest.fixture
def prepared(request: pytest.FixtureRequest, prepare_once: Prepare) -> Prepared:
    return prepare_once(request.param)


@pytest.fixture
def device(prepared: Prepared) -> Iterator[WeightsMemory]:
    fd = memfd.create("test-device", prepared.entry.device_bytes, sealed=True)
    yield WeightsMemory(fd)
    os.close(fd)


#: Last those that workers of other tests compute.
MODELS = sorted(NAMES, key={"brain", "recurrent", "residual"}.__contains__)
every_model = pytest.mark.parametrize("prepared", all_but_first(MODELS, stay=8), indirect=True)
some_models = pytest.mark.parametrize("prepared", all_but_first(MODELS, stay=4), indirect=True)


def one_model(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("prepared", [name], indirect=True)


def name_of(prepared: Prepared) -> str:
    return prepared.entry.source.factory.partition(":")[2]


def test_every_model_of_the_zoo_has_its_name() -> None:
    assert set(NAMES) == set(zoo.INPUTS)


@every_model
def test_cold_and_warm(prepared: Prepared, device: WeightsMemory) -> None:
    name = name_of(prepared)
    inputs = (zoo.INPUTS[name](),)
    model = BoundModel(prepared.entry, prepared.image, device)
    for expected in alone(name, inputs, inputs, inputs):
        assert same_bits(model(*inputs), expected)
        model.groups.wait()
        model.groups.stop()
        model.groups.drop()
    model.close()


@some_models
def test_a_second_worker_finds_the_weights(prepared: Prepared, device: WeightsMemory) -> None:
    name = name_of(prepared)
    inputs = (zoo.INPUTS[name](),)
    first = BoundModel(prepared.entry, prepared.image, device)
    first.groups.load()
    first.groups.wait()
    entry = decode(encode(prepared.entry), Manifest)
    second = BoundModel(entry, prepared.image, device)
    assert second.groups.there == second.groups.count
    assert same_bits(second(*inputs), alone(name, inputs)[0])
    first.close()
    second.close()


@one_model("branching")
def test_what_the_profile_has_not_seen(prepared: Prepared, device: WeightsMemory) -> None:
    """The other branch uses what comes last first, and what is never used in the first."""
    other = (-zoo.INPUTS["branching"](),)
    assert prepared.entry.profile.layers[-1].compute_ns == 0
    model = BoundModel(prepared.entry, prepared.image, device)
    assert same_bits(model(*other), alone("branching", other)[0])
    model.close()


@one_model("counting")
def test_what_computing_writes_is_each_workers_own(prepared: Prepared, device: WeightsMemory) -> None:
    inputs = (zoo.INPUTS["counting"](),)
    assert len(prepared.entry.profile.private) == 3
    expected = alone("counting", inputs, inputs)
    for _ in range(2):
        model = BoundModel(prepared.entry, prepared.image, device)
        assert same_bits(model(*inputs), expected[0])
        assert same_bits(model(*inputs), expected[1])
        model.close()


@pytest.mark.parametrize(
    ("prepared", "why"),
    [("needy", "other results"), ("refusing", "cannot be right"), ("tied", None), ("rotary", None)],
    indirect=["prepared"],
)
def test_models_that_need_their_first_weights(prepared: Prepared, why: str | None) -> None:
    plainly = prepared.entry.plainly
    assert plainly is None if why is None else plainly is not None and why in plainly


@one_model("tied")
def test_tied_weights_are_there_once(prepared: Prepared) -> None:
    assert prepared.entry.device_bytes < 2 * 500 * zoo.WIDTH * 4 + 1_000_000
    sizes = [layer.size for layer in prepared.entry.profile.layers]
    assert sizes[0] == 500 * zoo.WIDTH * 4  # the embedding, and never again
    assert sizes.count(sizes[0]) == 1


@one_model("rotary")
def test_another_model_under_the_same_name(prepared: Prepared, device: WeightsMemory) -> None:
    entry = replace(prepared.entry, source=source("brain"))
    with pytest.raises(Unusable, match="another model"):
        BoundModel(entry, prepared.image, device)


@one_model("rotary")
def test_too_small_a_device(prepared: Prepared) -> None:
    small = memfd.create("small", prepared.entry.device_bytes - memfd.PAGE, sealed=True)
    with pytest.raises(OSError, match="cannot be mapped"):
        BoundModel(prepared.entry, prepared.image, WeightsMemory(small))
    os.close(small)


def test_a_model_whose_answers_differ_is_refused() -> None:
    before = descriptors()
    with pytest.raises(Unusable, match="differ from run to run"):
        prepare(source("copying"), (zoo.INPUTS["brain"]().float(),))
    assert descriptors() == before


def test_random_answers_are_no_difference() -> None:
    made = prepare(source("dropping"), (zoo.INPUTS["brain"]().float(),))
    os.close(made.image)
    assert made.entry.plainly is None


def test_a_refusal_leaves_no_image() -> None:
    def refuse(size: int) -> None:
        raise MemoryError(size)

    before = descriptors()
    with pytest.raises(MemoryError):
        prepare(source("brain"), (zoo.INPUTS["brain"](),), admit=refuse)
    assert descriptors() == before


def test_a_kept_profile_is_used_and_a_broken_one_replaced(tmp_path: Path) -> None:
    kept, inputs = tmp_path / "profile.json", (zoo.INPUTS["brain"](),)
    entries = []
    for spoil in (None, None, b"{", b"", b'{"key": 3}', kept):
        if isinstance(spoil, bytes):
            kept.write_bytes(spoil)
        made = prepare(source("brain"), inputs, kept=kept)
        os.close(made.image)
        entries.append(made.entry)
    other = prepare(source("brain"), (inputs[0][:1],), kept=kept)
    os.close(other.image)
    assert other.entry.profile.key != entries[0].profile.key, "of another batch"
    assert entries[0] == entries[1]
    assert entries[4] == entries[5] != entries[0]  # measured again: times differ
    assert list(tmp_path.iterdir()) == [kept]


@some_models
def test_bound_later_and_to_other_memory(prepared: Prepared) -> None:
    """The weights are in one place after another; what a model keeps of its own stays as it is."""
    name = name_of(prepared)
    inputs = (zoo.INPUTS[name](),)
    model = BoundModel(prepared.entry, prepared.image)
    for expected in alone(name, inputs, inputs, inputs):
        device = memfd.create("another", prepared.entry.device_bytes, sealed=True)
        model.bind(WeightsMemory(device))
        assert model.groups.there == 0
        assert same_bits(model(*inputs), expected)
        model.stop()
        groups = model.groups
        model.bind(WeightsMemory(device))
        assert model.groups is groups
        os.close(device)
    model.close()


@one_model("refusing")
def test_an_unbound_model_has_no_weights(prepared: Prepared) -> None:
    """Not even those that its structure was built with."""
    before = descriptors()
    model = BoundModel(prepared.entry, prepared.image)
    assert prepared.entry.plainly is not None
    assert model.module.layer.weight.count_nonzero() == 0
    model.stop()
    model.close()
    model.close()
    assert descriptors() == before


@one_model("rotary")
def test_memory_that_cannot_be_bound_leaves_the_model_where_it_was(prepared: Prepared, device: WeightsMemory) -> None:
    inputs = (zoo.INPUTS["rotary"](),)
    model = BoundModel(prepared.entry, prepared.image, device)
    small = memfd.create("small", memfd.PAGE, sealed=True)
    with pytest.raises(OSError, match="cannot be mapped"):
        model.bind(WeightsMemory(small))
    os.close(small)
    assert same_bits(model(*inputs), alone("rotary", inputs)[0])
    model.close()


def test_inputs_that_the_module_itself_gives() -> None:
    given: list[torch.nn.Module] = []

    def inputs(module: torch.nn.Module) -> Inputs:
        given.append(module)
        return (zoo.INPUTS["brain"](),)

    made = prepare(source("brain"), inputs)
    os.close(made.image)
    assert len(given) == 1
    assert same_bits(made.answer, alone("brain", (zoo.INPUTS["brain"](),))[0])


def test_groups_are_those_that_have_computed_first() -> None:
    """Of a slow link everything is one group's matter; of one that costs nothing by itself each layer has its own."""
    layers = tuple(Layer((k,), 1 << 20, 1_000_000) for k in range(6))
    slow, free = LinkCost(50_000_000, 1 << 40), LinkCost(0, 1 << 30)
    assert pipelined(Profile("k", layers, (), 0, slow)) == (6,)
    assert pipelined(Profile("k", layers, (), 0, free))[0] == 1


def test_groups_for_a_gpu_do_not_ask_for_times() -> None:
    sizes = (GPU_GROUP // 2, GPU_GROUP // 2, 2 * GPU_GROUP, 7, 0)
    for compute_ns in (0, 1_000_000):
        layers = tuple(Layer((k,), size, compute_ns) for k, size in enumerate(sizes))
        assert joined(Profile("k", layers, (), 0, LinkCost(0, 1))) == (2, 3, 5)
