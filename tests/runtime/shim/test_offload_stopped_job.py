"""Taking a stopped job's memory: what the shim copies, when it refuses, what a failure leaves behind."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from carpool.protocol.seat import BOARD_BYTES, CHUNK, FIELDS, HEADER_BYTES, IN_DEVICE, IN_STORE, SEAT_BYTES, Seat
from carpool.protocol.session import BUSY, WITHDRAWN
from carpool.runtime.shim import offload_stopped_job
from carpool.runtime.shim.offload_stopped_job import Taking
from tests.descriptors import descriptors

CHUNKS = 16
BANK = CHUNKS * CHUNK
PAGE = os.sysconf("SC_PAGE_SIZE")


class Scene:
    """A bank, a store and the seat of a job that has been asked to offload and is stopped."""

    def __init__(self) -> None:
        self.bank, self.store = os.memfd_create("bank"), os.memfd_create("store")
        os.ftruncate(self.bank, BANK)
        os.ftruncate(self.store, BANK + CHUNKS)
        self.board = bytearray(BOARD_BYTES)
        self.seat = Seat(memoryview(self.board), 0)
        self.seat.set("offload", 1)

    def write(self, offset: int, size: int, value: int) -> None:
        os.pwrite(self.bank, bytes([value]) * size, offset)

    def stored(self, offset: int, size: int) -> set[int]:
        return set(os.pread(self.store, size, offset))

    @property
    def states(self) -> list[int]:
        return list(os.pread(self.store, CHUNKS, BANK))

    def read_seat(self) -> bytes:
        return bytes(self.board[HEADER_BYTES : HEADER_BYTES + SEAT_BYTES])

    def take(self, between: Callable[[], object] = lambda: None) -> Taking:
        taking = Taking(self.bank, self.store)
        while not taking.step(self.read_seat):
            between()
        return taking

    def close(self) -> None:
        os.close(self.bank)
        os.close(self.store)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    before = descriptors()
    yield made
    assert descriptors() == before, "it left descriptors open"
    made.close()


def test_its_words_are_those_of_the_protocol() -> None:
    offsets = [FIELDS[name][0] for name in ("turn", "offload", "offloaded")]
    assert offsets == [offload_stopped_job._TURN, offload_stopped_job._OFFLOAD, offload_stopped_job._OFFLOADED]
    assert (offload_stopped_job.CHUNK, offload_stopped_job.IN_DEVICE, offload_stopped_job.IN_STORE) == (
        CHUNK,
        IN_DEVICE,
        IN_STORE,
    )
    assert (offload_stopped_job.BUSY, offload_stopped_job.WITHDRAWN) == (BUSY, WITHDRAWN)


def test_everything_that_exists_is_copied(scene: Scene) -> None:
    scene.write(0, CHUNK + PAGE, 1)
    scene.write(5 * CHUNK + 3 * PAGE, PAGE, 2)
    taking = scene.take()
    assert (taking.error, taking.bytes) == (None, CHUNK + 2 * PAGE)
    assert [chunk for chunk, state in enumerate(scene.states) if state == IN_STORE] == [0, 1, 5]
    assert scene.stored(0, CHUNK + PAGE) == {1}
    assert scene.stored(5 * CHUNK + 3 * PAGE, PAGE) == {2}
    assert os.fstat(scene.store).st_blocks * 512 <= CHUNK + 4 * PAGE  # no more than that


def test_an_empty_bank(scene: Scene) -> None:
    taking = scene.take()
    assert (taking.error, taking.bytes, set(scene.states)) == (None, 0, {IN_DEVICE})


def test_what_is_in_the_store_already_stays_as_it_is(scene: Scene) -> None:
    """The bank holds something else there: what the job that used it before has left."""
    scene.write(0, 2 * CHUNK, 1)
    os.pwrite(scene.store, b"\x07" * CHUNK, CHUNK)
    os.pwrite(scene.store, bytes([IN_STORE]), BANK + 1)
    taking = scene.take()
    assert (taking.error, taking.bytes) == (None, 2 * CHUNK)
    assert scene.stored(0, CHUNK) == {1} and scene.stored(CHUNK, CHUNK) == {7}
    again = scene.take()  # an earlier daemon's request has been carried out, and this one asks again
    assert (again.error, again.bytes) == (None, 2 * CHUNK)


def test_not_while_the_job_moves_it_itself(scene: Scene) -> None:
    scene.write(0, CHUNK, 1)
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[2]); from carpool.runtime.shim.offload_stopped_job import lock;"
        "fd = os.open('/proc/self/fd/' + sys.argv[1], os.O_RDWR); assert lock(fd); print('mine', flush=True); input()"
    )
    source = str(Path(__file__).parents[3] / "src")
    command = [sys.executable, "-c", script, str(scene.store), source]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(scene.store,)) as other:
        assert other.stdout is not None and other.stdout.readline() == b"mine\n"
        assert (scene.take().error, set(scene.states)) == (BUSY, {IN_DEVICE})
        other.communicate(b"\n")
    assert scene.take().error is None


@pytest.mark.parametrize(("word", "value"), [("turn", 1), ("offload", 0), ("offload", 2), ("offloaded", 1)])
@pytest.mark.parametrize("late", [False, True])
def test_only_what_is_asked_for(scene: Scene, word: str, value: int, late: bool) -> None:
    scene.write(0, CHUNK, 1)
    if late:  # the job has been continued, and was faster
        taking = scene.take(lambda: scene.seat.set(word, value))
    else:
        scene.seat.set(word, value)
        taking = scene.take()
    assert (taking.error, set(scene.states)) == (WITHDRAWN, {IN_DEVICE})


def test_a_failure_leaves_everything_as_it_was(scene: Scene) -> None:
    scene.write(0, 3 * CHUNK, 1)
    old_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (CHUNK + PAGE, old_limit[1]))
    try:
        taking = scene.take()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limit)
        signal.signal(signal.SIGXFSZ, old_handler)
    assert (taking.error, set(scene.states)) == ("File too large", {IN_DEVICE})
    assert os.fstat(scene.store).st_blocks == 0, "what was copied for nothing keeps its memory"
    assert scene.take().error is None, "the lock has not been given back"


def test_a_withdrawal_gives_back_what_was_copied_and_nothing_else(scene: Scene) -> None:
    scene.write(0, 3 * CHUNK, 1)
    os.pwrite(scene.store, b"\x07" * CHUNK, CHUNK)  # kept from an earlier offload
    os.pwrite(scene.store, b"\x08" * CHUNK, 2 * CHUNK)
    os.pwrite(scene.store, bytes([IN_STORE]), BANK + 2)
    before = os.fstat(scene.store).st_blocks
    taking = scene.take(lambda: scene.seat.set("turn", 1))
    assert taking.error == WITHDRAWN and os.fstat(scene.store).st_blocks == before
    assert scene.stored(2 * CHUNK, CHUNK) == {8}


def test_a_shim_that_keeps_nothing() -> None:
    taking = Taking(None, None)
    assert taking.step(bytes) and "does not hold" in str(taking.error)
