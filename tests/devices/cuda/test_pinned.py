"""Host stores in the agent: what is pinned, by whom, and that nobody waits for the thread longer than for a piece."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from carpool.devices import memfd
from carpool.devices.cuda import messages, pinned
from carpool.devices.cuda.agent import Agent
from carpool.devices.cuda.driver import DriverError
from carpool.devices.cuda.memory import Mapped
from carpool.devices.cuda.pinned import PinnedStore, PinningAhead

PIECE = 4096
PIECES = 4
PATIENCE_S = 5.0


class Gpu:
    """Pins in name only, once `go` is set; ``failing``: that many times not even that."""

    def __init__(self) -> None:
        self.pins: list[int] = []
        self.pinned: set[int] = set()
        self.begun, self.go = threading.Event(), threading.Event()
        self.failing = 0
        self.thread: int | None = None  # that has entered the context

    def context(self) -> str:
        return "context"

    def enter(self, context: str) -> None:
        assert context == "context"
        self.thread = threading.get_ident()

    def pin(self, host: int, size: int) -> None:
        self.begun.set()
        assert self.thread == threading.get_ident() or threading.current_thread() is threading.main_thread()
        assert size == PIECE
        if not self.go.wait(PATIENCE_S) or host in self.pinned:
            raise DriverError("cuMemHostRegister", 712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "two at once")
        if self.failing:
            self.failing -= 1
            raise DriverError("cuMemHostRegister", 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory")
        self.pins.append(host)
        self.pinned.add(host)

    def unpin(self, host: int) -> None:
        self.pinned.remove(host)

    def open(self, fd: int, size: int) -> Mapped:
        return Mapped(None, 0, size)

    def copy_out(self, address: int, host: int, size: int) -> None:
        assert host in self.pinned

    def wait(self) -> None:
        pass


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    monkeypatch.setattr(pinned, "PIECE", PIECE)
    return Gpu()


@pytest.fixture
def store(gpu: Gpu) -> Iterator[PinnedStore]:
    fd = memfd.create("store", PIECES * PIECE, sealed=True)
    with closing(PinnedStore(gpu, fd)) as made:  # type: ignore[arg-type]
        os.close(fd)
        yield made


@pytest.fixture
def ahead(gpu: Gpu) -> Iterator[PinningAhead]:
    made = PinningAhead(gpu)  # type: ignore[arg-type]
    yield made
    made.stop()


def in_the_middle(gpu: Gpu, store: PinnedStore, ahead: PinningAhead) -> None:
    """The thread pins the first piece; see `let_through`."""
    ahead.begin(store, PIECES * PIECE)
    let_through(gpu, ahead)


def let_through(gpu: Gpu, ahead: PinningAhead) -> None:
    """When the thread pins, and then when somebody waits for it."""
    assert gpu.begun.wait(PATIENCE_S)
    waits = ahead._changed.wait_for

    def wait_for(*about):  # type: ignore[no-untyped-def]
        gpu.go.set()
        return waits(*about)

    ahead._changed.wait_for = wait_for  # type: ignore[method-assign]


def until_done(ahead: PinningAhead) -> None:
    with ahead._changed:
        assert ahead._changed.wait_for(lambda: not ahead._runs, PATIENCE_S)


def test_all_that_is_wanted_is_pinned_and_not_more(gpu: Gpu, store: PinnedStore, ahead: PinningAhead) -> None:
    gpu.go.set()
    ahead.begin(store, 2 * PIECE + 1)
    until_done(ahead)
    assert [host - gpu.pins[0] for host in gpu.pins] == [0, PIECE, 2 * PIECE]


def test_a_copy_waits_for_one_piece_and_pins_the_rest_itself(gpu: Gpu, store: PinnedStore, ahead: PinningAhead) -> None:
    in_the_middle(gpu, store, ahead)
    ahead.leave(store)
    assert len(gpu.pins) == 1
    assert [done for done, _, _ in store.pieces(0, PIECES * PIECE)] == [number * PIECE for number in range(PIECES)]
    assert len(gpu.pins) == PIECES


def test_a_store_that_is_closed_while_it_is_pinned_has_nothing_pinned(
    gpu: Gpu, store: PinnedStore, ahead: PinningAhead
) -> None:
    fd = memfd.create("another", PIECE, sealed=True)
    another = PinnedStore(gpu, fd)  # type: ignore[arg-type]
    os.close(fd)
    in_the_middle(gpu, another, ahead)
    ahead.leave(another)
    another.close()
    ahead.stop()
    assert gpu.pins and not gpu.pinned


def test_nothing_is_pinned_after_a_stop(gpu: Gpu, store: PinnedStore, ahead: PinningAhead) -> None:
    in_the_middle(gpu, store, ahead)
    ahead.stop()
    assert len(gpu.pins) == 1
    ahead.begin(store, 2 * PIECE)  # by another thread
    until_done(ahead)
    assert len(gpu.pins) == 2


def test_what_cannot_be_pinned_ahead_is_left_to_the_copy(gpu: Gpu, store: PinnedStore, ahead: PinningAhead) -> None:
    gpu.failing = 1
    gpu.go.set()
    ahead.begin(store, PIECES * PIECE)
    until_done(ahead)
    assert not gpu.pins
    assert list(store.pieces(0, PIECE)) and len(gpu.pins) == 1


def test_more_can_be_wanted_of_a_store_meanwhile(gpu: Gpu, store: PinnedStore, ahead: PinningAhead) -> None:
    ahead.begin(store, PIECE)
    assert gpu.begun.wait(PATIENCE_S)
    ahead.begin(store, 3 * PIECE)
    gpu.go.set()
    until_done(ahead)
    assert len(gpu.pins) == 3


# The agent


@pytest.fixture
def agent(gpu: Gpu) -> Iterator[Agent]:
    """One that pins store 1 ahead, and is in the middle of it."""
    made, size = Agent(gpu, whole=True), PIECES * PIECE  # type: ignore[arg-type]
    fd = memfd.create("store", size, sealed=True)
    made.pin_ahead(messages.PinAhead(1, size), [fd])
    let_through(gpu, made._ahead)
    yield made
    os.close(fd)
    made.close()


def test_a_request_to_copy_takes_the_store_over(gpu: Gpu, agent: Agent) -> None:
    copy = messages.Copy(1, PIECES * PIECE, 0, 1, 0, PIECES * PIECE, out=True)
    assert agent.handle(copy, [-1, -1]) == (messages.Done(), [])
    assert len(gpu.pins) == PIECES


def test_a_store_that_the_agent_forgets_has_nothing_pinned(gpu: Gpu, agent: Agent) -> None:
    agent.forget([], [1])
    agent.close()
    assert not gpu.pinned
