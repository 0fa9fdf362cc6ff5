"""Images are complete and unchangeable, and all of them stay within the budget."""

from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Iterator

import pytest

from carpool.serve.model.image_store import ImageStore, OverBudget, is_image, write_image
from tests.descriptors import descriptors

SIZE = 3 * mmap.PAGESIZE


def image(name: str = "one", size: int = SIZE) -> int:
    return write_image(name, size, [(100, memoryview(b"weights")), (size - 4, memoryview(b"last"))])


@pytest.fixture
def store() -> Iterator[ImageStore]:
    with ImageStore(budget=2 * SIZE) as made:
        yield made


def test_what_was_written_is_there_and_stays() -> None:
    fd = image()
    assert os.pread(fd, 7, 100) == b"weights"
    assert os.pread(fd, 4, SIZE - 4) == b"last"
    assert is_image(fd, SIZE)
    with pytest.raises(PermissionError):
        os.pwrite(fd, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)
    with pytest.raises(PermissionError):
        mmap.mmap(fd, SIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    os.close(fd)


def test_it_reaches_another_holder_unchanged() -> None:
    fd = image()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        socket.send_fds(ours, [b"image"], [fd])
        os.close(fd)
        _, (received,), _, _ = socket.recv_fds(theirs, 16, 1)
    assert is_image(received, SIZE)
    assert os.pread(received, 7, 100) == b"weights"
    os.close(received)


def test_a_part_that_fails_leaves_nothing() -> None:
    def parts() -> Iterator[tuple[int, memoryview]]:
        yield 0, memoryview(b"some")
        raise OSError("no more")

    before = descriptors()
    with pytest.raises(OSError, match="no more"):
        write_image("one", SIZE, parts())
    assert descriptors() == before


def test_models_come_and_go(store: ImageStore) -> None:
    store.put("one", image(), SIZE)
    store.put("two", image("two"), SIZE)
    assert store.sizes() == {"one": SIZE, "two": SIZE}
    store.remove("one")
    store.remove("one")
    store.put("three", image("three"), SIZE)
    assert os.pread(store.image("three"), 7, 100) == b"weights"
    with pytest.raises(KeyError):
        store.image("one")


def test_the_same_name_again_replaces(store: ImageStore) -> None:
    store.put("one", image(), SIZE)
    store.put("one", image(size=2 * SIZE), 2 * SIZE)
    assert store.sizes() == {"one": 2 * SIZE}


def test_over_the_budget(store: ImageStore) -> None:
    store.put("small", image(), SIZE)
    large = image("large", 2 * SIZE)
    with pytest.raises(
        OverBudget, match=r"model large has 24 KiB .* budget is 24 KiB, of which 12 KiB .*\(small 12 KiB\)"
    ):
        store.put("large", large, 2 * SIZE)
    assert store.sizes() == {"small": SIZE}
    os.close(large)  # still ours


def test_what_is_no_image(store: ImageStore) -> None:
    plain = os.memfd_create("plain")
    os.ftruncate(plain, SIZE)
    for fd, size in ((plain, SIZE), (image(), SIZE + 1), (os.open("/dev/null", os.O_RDONLY), 0)):
        with pytest.raises(ValueError, match="not a sealed file"):
            store.put("one", fd, size)
        os.close(fd)


def test_nothing_is_left_open() -> None:
    before = descriptors()
    with ImageStore(SIZE) as store:
        store.put("one", image(), SIZE)
    assert descriptors() == before
