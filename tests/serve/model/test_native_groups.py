"""The transfer as Python sees it; dying processes are in ``src/native/tests/weights/test_groups.c``."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from carpool.devices import memfd
from carpool.serve.model import native_groups
from carpool.serve.model import native_groups as module
from carpool.serve.model.image_store import write_image
from carpool.serve.model.native_groups import CopyStopped, Groups
from carpool.serve.plan.grouping import LinkCost
from tests.descriptors import descriptors
from tests.live import python_path
from tests.tiers import all_but_first

PAGE = memfd.PAGE
BOUNDS = (PAGE, 2 * PAGE, 5 * PAGE, 5 * PAGE, 8 * PAGE)
CONTENT = bytes(range(256)) * (7 * PAGE // 256)
KEY = b"k" * 32


@pytest.fixture
def image() -> Iterator[int]:
    fd = write_image("groups", BOUNDS[-1], [(PAGE, memoryview(CONTENT))])
    yield fd
    os.close(fd)


@pytest.fixture
def device() -> Iterator[int]:
    fd = memfd.create("device", BOUNDS[-1], sealed=True)
    yield fd
    os.close(fd)


def content(groups: Groups) -> bytes:
    return ctypes.string_at(groups.address + PAGE, len(CONTENT))


def test_a_read_waits_for_what_is_not_there(image: int, device: int) -> None:
    groups = Groups(device, image, BOUNDS, KEY)
    assert groups.there == 0
    groups.load()
    assert content(groups) == CONTENT
    groups.wait()
    assert groups.there == groups.count == 4
    groups.close()


def test_nobody_waits_for_what_nobody_brings(image: int, device: int) -> None:
    groups = Groups(device, image, BOUNDS, KEY)
    with pytest.raises(CopyStopped):
        groups.wait(1)
    groups.wait(0)
    groups.close()


def test_other_workers_hear_of_a_drop(image: int, device: int) -> None:
    one, other = (Groups(device, image, BOUNDS, KEY) for _ in range(2))
    for groups in (one, other):
        groups.load()
        assert content(groups) == CONTENT
        groups.wait()
        groups.stop()
    one.drop()
    other.shut()
    assert other.there == 0
    os.pwrite(device, bytes(len(CONTENT)), PAGE)  # whoever has the memory next
    other.load()
    assert content(other) == CONTENT
    one.close()
    other.close()


def test_weights_of_another_key_are_not_taken_for_these(image: int, device: int) -> None:
    for key in (KEY, b"o" * 32, KEY):
        groups = Groups(device, image, BOUNDS, key)
        assert groups.there == 0
        groups.load()
        assert content(groups) == CONTENT
        groups.close()


@pytest.mark.parametrize("key", [b"", b"k" * 31, b"k" * 33])
def test_a_key_of_another_length(image: int, device: int, key: bytes) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Groups(device, image, BOUNDS, key)


@pytest.mark.parametrize("bounds", [(0, PAGE), (PAGE,), (PAGE, PAGE + 1), (PAGE, 9 * PAGE)])
def test_bounds_that_cannot_be(image: int, device: int, bounds: tuple[int, ...]) -> None:
    with pytest.raises(OSError, match="cannot be mapped"):
        Groups(device, image, bounds, KEY)


def test_nothing_is_left_mapped_or_open(image: int, device: int) -> None:
    def held() -> tuple[int, int]:
        lines = Path("/proc/self/maps").read_text().splitlines()
        mapped = sum("memfd:device" in line or "carpool-model" in line for line in lines)
        return mapped, len(descriptors())

    before = held()
    for _ in range(300):  # more than can be open at once
        groups = Groups(device, image, BOUNDS, KEY)
        groups.load()
        groups.close()
        groups.close()
    assert held() == before


def test_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for libcarpool: what it is given, and what becomes of its answers."""
    opened: list[Any] = []
    answers = {(2, 7): 0, (3, 7): errno.ECANCELED, (4, 7): errno.EIO}
    library = SimpleNamespace(
        cp_groups_open_on_device=lambda *given: opened.append(given) or 11,
        cp_groups_follow=lambda handle, count, stream: answers[count, stream],
    )
    monkeypatch.setattr(module, "_library", lambda: library)
    groups = Groups(5, 6, BOUNDS, KEY, 1 << 40)
    assert groups.address == 1 << 40
    ((device, image, bounds, count, key, address),) = opened
    assert (device, image, tuple(bounds), count, key, address) == (5, 6, BOUNDS, 4, KEY, 1 << 40)
    groups.follow(2, 7)
    with pytest.raises(CopyStopped):
        groups.follow(3, 7)
    with pytest.raises(OSError, match="Input/output error"):
        groups.follow(4, 7)


def test_what_a_transfer_costs() -> None:
    cost = native_groups.measure(1 << 20)
    assert cost.transfer_ns >= 0
    assert cost.rate > 0


def test_how_long_a_copy_takes() -> None:
    assert native_groups.copy_us(LinkCost(transfer_ns=1500, rate=2_000_000_000), 4, 8_000_000) == 4006


@pytest.mark.parametrize("name", all_but_first(["recurrent", "residual"]))
def test_killed_in_every_group(name: str, python: str, root: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": python_path(root / "src", root)}
    done = subprocess.run(
        [python, "-m", "tests.serve.killed", name],
        capture_output=True,
        text=True,
        env=environment,
        cwd=root,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert len(result["kills"]) == result["groups"] + 1
    for kill in result["kills"]:
        assert kill["there"] >= kill["group"], kill
        assert kill["right"] == [True, True, True], (kill, done.stderr)
