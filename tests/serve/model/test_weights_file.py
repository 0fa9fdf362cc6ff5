"""safetensors files as the public library writes them, all that can be wrong with them, and memory for weights."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from carpool.serve.model import seat_device
from carpool.serve.model.seat_device import SeatRefused
from carpool.serve.model.weights_device import Plain, ServiceSeat, WeightsDemand, WeightsMemory, of_process


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global torch, save_file, save_model, Tensor, nn, skeleton, weights_file, Unusable, zoo, Bag
    import torch
    from safetensors.torch import save_file, save_model
    from torch import Tensor, nn

    from carpool.serve.model import skeleton, weights_file
    from carpool.serve.model.skeleton import Unusable
    from tests.serve import zoo
    from tests.serve.model.modules import Bag


DTYPES = [
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2",
    "int64", "int32", "int16", "int8", "uint8", "bool",
]  # fmt: skip


def built(name: str, seed: int) -> nn.Module:
    return skeleton.build(getattr(zoo, name), seed, weights=True)


@pytest.mark.parametrize("name", ["residual", "recurrent", "rotary", "brain"])
def test_weights_are_what_pytorch_loads(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file(built(name, 1).state_dict(), path)
    ours, expected = built(name, 2), built(name, 2)
    weights_file.read(ours, path)
    expected.load_state_dict(built(name, 1).state_dict())
    for key, value in expected.state_dict().items():
        assert torch.equal(ours.state_dict()[key], value), key


@pytest.mark.parametrize("name", DTYPES)
def test_any_dtype(name: str, tmp_path: Path) -> None:
    dtype = getattr(torch, name)
    values = torch.arange(24).reshape(2, 3, 4).to(dtype)
    save_file({"x": values, "scalar": values[0, 0, 1].clone(), "none": values[:0].clone()}, tmp_path / "x.safetensors")
    bag = Bag(
        x=torch.zeros(2, 3, 4, dtype=dtype), scalar=torch.zeros((), dtype=dtype), none=torch.zeros(0, 3, 4, dtype=dtype)
    )
    weights_file.read(bag, tmp_path / "x.safetensors")
    assert bag.x.view(torch.uint8).equal(values.view(torch.uint8))
    assert bag.scalar.float() == values[0, 0, 1].float()


def test_tied_weights_are_written_once(tmp_path: Path) -> None:
    saved, loaded = built("tied", 1), built("tied", 2)
    save_model(saved, str(tmp_path / "x.safetensors"))
    weights_file.read(loaded, tmp_path / "x.safetensors")
    assert torch.equal(loaded.head.weight, saved.word.weight)
    assert loaded.head.weight is loaded.word.weight


def write_parts(directory: Path, state: dict[str, Tensor]) -> Path:
    names = {key: f"part-{index % 2}.safetensors" for index, key in enumerate(state)}
    for part in set(names.values()):
        save_file({key: value for key, value in state.items() if names[key] == part}, directory / part)
    index = directory / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return index


def test_several_files_with_an_index(tmp_path: Path) -> None:
    saved, loaded = built("residual", 1), built("residual", 2)
    weights_file.read(loaded, write_parts(tmp_path, saved.state_dict()))
    assert all(torch.equal(value, loaded.state_dict()[key]) for key, value in saved.state_dict().items())


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{", "has no weight_map"),
        ("[]", "has no weight_map"),
        ('{"weight_map": []}', "name of a file beside it"),
        ('{"weight_map": {"x": "../x.safetensors"}}', "name of a file beside it"),
        ('{"weight_map": {"x": 3}}', "name of a file beside it"),
        ('{"weight_map": {"x": "gone.safetensors"}}', "cannot be read|gone.safetensors"),
        ('{"weight_map": {"x": "part-0.safetensors"}}', "says that x is in part-0.safetensors, and it is not"),
        ("[" * 100_000, "has no weight_map"),
    ],
)
def test_bad_indexes(index: str, message: str, tmp_path: Path) -> None:
    write_parts(tmp_path, {"a": torch.zeros(2), "b": torch.zeros(2)}).write_text(index)
    with pytest.raises(Unusable, match=message):
        weights_file.read(Bag(x=torch.zeros(2)), tmp_path / "model.safetensors.index.json")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict, "lacks a, b"),
        (lambda: {"a": torch.zeros(2)}, "lacks b"),
        (lambda: {"a": torch.zeros(2), "b": torch.zeros(3), "c": torch.zeros(1)}, "does not know: c"),
        (lambda: {"a": torch.zeros(3), "b": torch.zeros(3)}, r"a \(float32 \[3\] instead of float32 \[2\]\)"),
        (lambda: {"a": torch.zeros(2).half(), "b": torch.zeros(3)}, r"a \(float16 \[2\] instead of float32 \[2\]\)"),
        (
            lambda: {f"k{n:02}": torch.zeros(1) for n in range(9)} | {"a": torch.zeros(2), "b": torch.zeros(3)},
            "k04 and 4 more",
        ),
    ],
)
def test_other_weights_than_the_model_has(given: Callable[[], dict[str, Tensor]], message: str, tmp_path: Path) -> None:
    save_file(given(), tmp_path / "x.safetensors")
    with pytest.raises(Unusable, match=message):
        weights_file.read(Bag(a=torch.zeros(2), b=torch.zeros(3)), tmp_path / "x.safetensors")


def test_no_such_file(tmp_path: Path) -> None:
    for path in (tmp_path / "x.safetensors", tmp_path / "x.safetensors.index.json", tmp_path):
        with pytest.raises(Unusable, match=str(path)):
            weights_file.read(Bag(a=torch.zeros(2)), path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "x.safetensors"
    save_file({"a": torch.arange(4.0), "b": torch.arange(6).reshape(2, 3)}, path)
    return path.read_bytes()


def attempt(content: bytes, path: Path) -> None:
    """Loaded or refused; anything else is an error."""
    path.write_bytes(content)
    try:
        weights_file.read(Bag(a=torch.zeros(4), b=torch.zeros(2, 3, dtype=torch.int64)), path)
    except Unusable as error:
        assert str(path) in str(error)


def test_truncated_anywhere(whole: bytes, tmp_path: Path) -> None:
    for length in range(len(whole)):
        (tmp_path / "x").write_bytes(whole[:length])
        with pytest.raises(Unusable):
            weights_file.read(Bag(a=torch.zeros(4), b=torch.zeros(2, 3, dtype=torch.int64)), tmp_path / "x")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(changes=st.lists(st.tuples(st.integers(0, 250), st.integers(0, 255)), min_size=1, max_size=6))
def test_changed_bytes(whole: bytes, changes: list[tuple[int, int]], tmp_path: Path) -> None:
    content = bytearray(whole)
    for place, value in changes:
        content[place % len(content)] = value
    attempt(bytes(content), tmp_path / "x")


HEADERS = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=5),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "b", "dtype", "shape", "data_offsets", "__metadata__"]), values, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(
    header=HEADERS,
    shape=st.lists(st.integers(-(2**63), 2**64), max_size=3),
    offsets=st.tuples(st.integers(-1, 2**64), st.integers(-1, 2**64)),
    length=st.none() | st.integers(0, 2**64 - 1),
)
def test_odd_headers(
    header: object, shape: list[int], offsets: tuple[int, int], length: int | None, tmp_path: Path
) -> None:
    entry = {"dtype": "F32", "shape": shape, "data_offsets": list(offsets)}
    for value in (header, {"a": entry, "b": header}):
        text = json.dumps(value).encode()
        attempt(struct.pack("<Q", len(text) if length is None else length) + text + bytes(64), tmp_path / "x")


def demand(key: int, size: int = 4096) -> WeightsDemand:
    return WeightsDemand(key, size, reload_us=1, compute_us=0, deadline_us=None)


def test_memory_per_key() -> None:
    device = of_process()
    assert isinstance(device, Plain)
    one, other = device.place(demand(1)).file, device.place(demand(2, 8192)).file
    assert [os.fstat(fd).st_size for fd in (one, other)] == [4096, 8192]
    device.take()
    device.release()
    assert device.place(demand(1)) == WeightsMemory(one, address=None)
    os.pwrite(one, b"x", 0)
    device.forget(1)
    device.forget(3)
    assert os.pread(device.place(demand(1)).file, 1, 0) == b"\0"
    for key in (1, 2):
        device.forget(key)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(other)


def test_given_memory() -> None:
    given = os.memfd_create("given")
    device = Plain({5: given})
    assert device.place(demand(5)) == WeightsMemory(given)
    device.forget(5)


def test_no_memory() -> None:
    with pytest.raises(SeatRefused, match="bytes of device memory"):
        Plain().place(demand(1, 2**63))


def test_a_job_keeps_the_file_and_asks_for_the_address_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = os.memfd_create("first"), os.memfd_create("second")
    files, addresses = iter([first, None, None, second]), iter([1 << 40, 1 << 40, 1 << 41, None])
    monkeypatch.setattr(seat_device, "place", lambda key, size, **others: next(files))
    monkeypatch.setattr(seat_device, "address", lambda key: next(addresses))
    device = ServiceSeat()
    given = [device.place(demand(1)) for _ in range(4)]
    assert given == [
        WeightsMemory(first, 1 << 40),
        WeightsMemory(first, 1 << 40),
        WeightsMemory(first, 1 << 41),
        WeightsMemory(second, None),
    ]
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(first)
    os.close(second)
