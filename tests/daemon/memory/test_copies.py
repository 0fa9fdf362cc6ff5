"""Offload and restore of jobs on a CUDA device: the daemon copies, whatever happens meanwhile.  On the stub driver."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable

import pytest
from fakeextents import BANK

from carpool.core import commands
from carpool.core.events import Event, Offloaded, OffloadFailed
from carpool.core.model import MIB
from carpool.devices.base import DeviceError
from carpool.devices.cuda.pinned import PIECE
from carpool.devices.memfd import round_up
from carpool.protocol.seat import PacketType, Yield
from tests.daemon.cuda_rig import Mapped, grant, limits, packets, until
from tests.daemon.cuda_rig_fixture import rig_that_retries
from tests.daemon.rig import Client, Rig
from tests.devices.cuda_stub import Stub

SIZE = 40 * MIB


@pytest.fixture
async def rig(stub: Stub) -> AsyncIterator[Rig]:
    async with rig_that_retries(stub, 0.05) as made:
        yield made


class Gate:
    """Copies one way wait until they are let through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rig: Rig, way: str) -> None:
        self._open = threading.Event()
        self.waiting = threading.Event()
        self.error: str | None = None
        real: Callable[..., Callable[[], None]] = getattr(rig.device, way)
        monkeypatch.setattr(rig.device, way, lambda *about: lambda: self._run(lambda: real(*about)()))

    def _run(self, work: Callable[[], None]) -> None:
        self.waiting.set()
        assert self._open.wait(20)
        if self.error is not None:
            raise DeviceError(self.error)
        work()

    async def reached(self) -> None:
        await until(self.waiting.is_set)

    def open(self) -> None:
        self._open.set()


def resident(rig: Rig, value: int = 7, owner: int = 1000) -> tuple[Client, Mapped]:
    """A job with content in its bank."""
    client = rig.attach(owner)
    mapped = Mapped(rig, client)
    grant(rig, client, SIZE, 0)
    mapped.drain()
    mapped.write(BANK, SIZE, value)
    rig.events.clear()
    return client, mapped


async def offloading(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> tuple[Client, Mapped, Gate]:
    """Such a job in the middle of the copy."""
    client, mapped = resident(rig)
    gate = Gate(monkeypatch, rig, "copy_out")
    rig.do(commands.Offload(client.job.id))
    await gate.reached()
    return client, mapped, gate


async def offload(rig: Rig, client: Client) -> None:
    rig.do(commands.Offload(client.job.id))
    await until(lambda: heard(rig, Offloaded))
    grant(rig, client, 0, 0)
    rig.events.clear()


async def comes_back(rig: Rig, client: Client, mapped: Mapped) -> None:
    """Everything that it had, as it was."""
    grant(rig, client, SIZE, 0)
    await until(lambda: limits(client) == (SIZE, 0))
    mapped.drain()
    assert mapped.read(BANK, SIZE) == {7}


def heard(rig: Rig, kind: type[Event]) -> bool:
    return any(isinstance(event, kind) for event in rig.events)


def states(client: Client) -> tuple[int, int]:
    return client.seat.get("offloaded"), client.seat.get("stored")


async def test_what_is_offloaded_comes_back(rig: Rig) -> None:
    client, mapped = resident(rig)
    rig.do(commands.Offload(client.job.id))
    assert client.job.offloading and states(client) == (0, 0)
    await until(lambda: heard(rig, Offloaded))
    assert states(client) == (1, SIZE) and client.job.bank is None and client.seat.get("offload") == 0
    assert client.seat.get("store_bytes") == client.seat.get("out_bytes") == SIZE
    assert rig.device.stored_bytes() == round_up(SIZE, PIECE)  # whole pieces are pinned
    grant(rig, client, 0, 0)
    mapped.write(BANK, SIZE, 1)  # whoever has the bank next
    grant(rig, client, SIZE, 0)
    rig.do(commands.GrantTurn(1, client.job.id))
    assert limits(client) == (0, 0) and client.seat.get("turn") == 0 and client.job.turn_due
    await until(lambda: client.seat.get("turn") == 1)
    mapped.drain()
    assert mapped.read(BANK, SIZE) == {7} and states(client) == (0, 0) and limits(client) == (SIZE, 0)
    assert client.seat.get("in_bytes") == SIZE
    assert packets(client) == [] and rig.watched == []


async def test_it_comes_back_to_another_bank(rig: Rig) -> None:
    first, mapped = resident(rig)
    await offload(rig, first)
    second, other = resident(rig, 8)
    rig.device.take_bank(1000, SIZE, first.seat.get("bank"))  # somebody else is faster
    grant(rig, first, SIZE, 0)
    await until(lambda: limits(first) == (SIZE, 0))
    mapped.drain()
    assert first.seat.get("bank") not in (1, second.seat.get("bank"))
    assert mapped.read(BANK, SIZE) == {7} and other.read(BANK, SIZE) == {8}
    assert not any(name.startswith("bank:cuda0:1:") for name in first.kept)


async def test_a_free_bank_gives_way_and_everybody_lets_go_of_it(rig: Rig) -> None:
    first, mapped = resident(rig)
    await offload(rig, first)
    second = rig.attach(owner=1001)
    grant(rig, second, 216 * MIB, 0)
    assert limits(second) == (0, 0)
    mapped.answer()
    await until(lambda: limits(second) == (216 * MIB, 0))
    assert mapped.end(BANK) < SIZE


async def test_a_job_with_nothing_has_nothing_to_copy(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    client = rig.attach()
    gate = Gate(monkeypatch, rig, "copy_out")
    rig.do(commands.Offload(client.job.id))
    assert heard(rig, Offloaded) and states(client) == (1, 0) and not gate.waiting.is_set()
    grant(rig, client, SIZE, 0)
    assert states(client) == (0, 0) and limits(client) == (SIZE, 0)


@pytest.mark.parametrize("gave_it_back", [False, True])
async def test_a_copy_of_a_job_that_got_a_turn_is_worth_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, gave_it_back: bool
) -> None:
    client, mapped, gate = await offloading(rig, monkeypatch)
    client.seat.set("turn", 0 if gave_it_back else 1)
    client.seat.set("passed_seq", client.seat.get("passed_seq") + gave_it_back)
    gate.open()
    await until(lambda: heard(rig, OffloadFailed))
    assert states(client) == (0, 0) and client.job.bank is not None and not client.job.offloading
    assert mapped.read(BANK, SIZE) == {7}


async def test_a_turn_that_is_granted_during_a_copy_comes_after_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only after a restart."""
    client, mapped, gate = await offloading(rig, monkeypatch)
    rig.do(commands.GrantTurn(1, client.job.id))
    assert client.seat.get("turn") == 0
    gate.open()
    await until(lambda: heard(rig, OffloadFailed))
    assert client.seat.get("turn") == 1 and mapped.read(BANK, SIZE) == {7}


async def test_a_turn_that_was_asked_back_before_it_began_is_given_back_at_its_boundary(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _mapped, gate = await offloading(rig, monkeypatch)
    rig.do(commands.GrantTurn(1, client.job.id))
    rig.do(commands.RequestYield(client.job.id))
    gate.open()
    await until(lambda: bool(client.seat.get("turn")))
    assert client.seat.get("yield") == Yield.BOUNDARY


async def test_a_restore_that_fails_is_tried_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client, mapped = resident(rig)
    await offload(rig, client)
    with monkeypatch.context() as broken:
        gate = Gate(broken, rig, "copy_in")
        gate.error = "the GPU is on fire"
        gate.open()
        grant(rig, client, SIZE, 0)
        await until(lambda: "on fire" in caplog.text)
        assert states(client) == (1, SIZE) and limits(client) == (0, 0)
    await until(lambda: limits(client) == (SIZE, 0))
    mapped.drain()
    assert mapped.read(BANK, SIZE) == {7}


@pytest.mark.parametrize("way", ["copy_out", "copy_in"])
async def test_nobody_gets_a_bank_that_is_being_copied(rig: Rig, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Not even when its job is gone."""
    client, mapped = resident(rig)
    _, theirs = resident(rig, 8)
    if way == "copy_in":
        await offload(rig, client)
    gate = Gate(monkeypatch, rig, way)
    if way == "copy_in":
        grant(rig, client, SIZE, 0)
    else:
        rig.do(commands.Offload(client.job.id))
    await gate.reached()
    bank = client.job.bank
    mapped.close()
    rig.channels.attaching.detach(client.job)
    assert rig.device.take_bank(1000, SIZE, bank) != bank
    gate.open()
    await rig.memory.copies.close()
    assert rig.device.take_bank(1000, SIZE, bank) == bank and not heard(rig, OffloadFailed)
    assert theirs.read(BANK, SIZE) == {8}


async def test_an_offload_during_a_restore_waits_for_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    client, mapped = resident(rig)
    await offload(rig, client)
    gate = Gate(monkeypatch, rig, "copy_in")
    grant(rig, client, SIZE, 0)
    await gate.reached()
    rig.do(commands.Offload(client.job.id))
    assert client.job.bank is not None and not heard(rig, Offloaded)
    gate.open()
    await until(lambda: heard(rig, Offloaded))
    assert client.job.bank is None and states(client) == (1, SIZE)
    grant(rig, client, 0, 0)
    assert limits(client) == (0, 0)
    await comes_back(rig, client, mapped)


async def test_a_store_that_is_not_needed_is_given_back(rig: Rig) -> None:
    client, mapped = resident(rig)
    await offload(rig, client)
    grant(rig, client, SIZE, 0)
    await until(lambda: limits(client) == (SIZE, 0))
    rig.do(commands.DropStore(client.job.id))
    rig.do(commands.Offload(client.job.id))  # at once
    await until(lambda: heard(rig, Offloaded))
    grant(rig, client, 0, 0)
    mapped.write(BANK, SIZE, 1)
    await comes_back(rig, client, mapped)
    rig.do(commands.DropStore(client.job.id))
    assert client.seat.get("store_bytes") == 0
    await until(lambda: rig.device.stored_bytes() == 0)


async def test_a_store_that_was_pinned_ahead_is_counted_used_and_given_back(rig: Rig) -> None:
    client, mapped = resident(rig)
    rig.do(commands.PinStore(client.job.id, SIZE))
    assert client.seat.get("store_bytes") == SIZE
    await until(lambda: rig.device.stored_bytes() >= SIZE)
    rig.do(commands.DropStore(client.job.id))
    await until(lambda: rig.device.stored_bytes() == 0)
    rig.do(commands.PinStore(client.job.id, SIZE))
    await offload(rig, client)
    await comes_back(rig, client, mapped)


async def test_a_store_is_given_back_before_its_job_has_a_bank(rig: Rig, client: Client) -> None:
    rig.do(commands.PinStore(client.job.id, SIZE))
    await until(lambda: rig.device.stored_bytes() >= SIZE)
    rig.seating.free_bank(client.job)
    rig.do(commands.DropStore(client.job.id))
    await until(lambda: rig.device.stored_bytes() == 0)


async def test_jobs_are_not_asked_and_not_heard(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _mapped, gate = await offloading(rig, monkeypatch)
    rig.says(client, PacketType.OFFLOADED, 0, SIZE)
    assert rig.events == [] and client.seat.get("offload") == 0 and rig.watched == []
    gate.open()
    await until(lambda: heard(rig, Offloaded))
