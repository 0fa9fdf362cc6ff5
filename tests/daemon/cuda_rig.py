"""A rig with a CUDA device on the stub driver, and the memory of its clients as their jobs would have it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from fakeextents import BANK, LANE, ExtentMover

from carpool.core import commands
from carpool.core.model import MIB, Memory, MemoryClass
from carpool.devices.cuda.agent_link import AgentLink
from carpool.devices.cuda.device import CudaDevice, GpuTraits
from carpool.protocol.seat import PacketType
from tests.daemon.rig import Client, Rig

CAPACITY = 224 * MIB
PATIENCE_S = 30.0


def cuda_rig(*, close_lanes: bool = False) -> Rig:
    return Rig(CudaDevice("cuda0", CAPACITY, AgentLink(0, linger_s=0.0), GpuTraits("GPU-1")), close_lanes=close_lanes)


class Mapped(ExtentMover):
    """The memory of a client."""

    def __init__(self, rig: Rig, client: Client) -> None:
        self.done: list[tuple[int, ...]] = []
        super().__init__(client.seat, client.channel, client.setup, lambda kind, *words: self.done.append(words))
        self._rig, self._client = rig, client
        rig.mapped.append(self)

    def answer(self) -> None:
        """Read everything, and say that it has let go of what was cut."""
        self.drain()
        for words in self.done:
            self._rig.says(self._client, PacketType.CUT_DONE, *words)
        self.done.clear()

    def close(self) -> None:
        for kind in (BANK, LANE):
            self._cut(kind, 0)


def packets(client: Client) -> list[tuple[PacketType, int, int, int, int]]:
    """What it has been sent: kind, a, b, c, d."""
    found = []
    while not client.silent():
        packet, fds = client.receive()
        found.append((packet.type, packet.a, packet.b, packet.c, packet.d))
        for fd in fds:
            client.fds.remove(fd)
            os.close(fd)
    return found


def limits(client: Client) -> tuple[int, int]:
    return client.seat.get("p_limit"), client.seat.get("e_limit")


def grant(rig: Rig, client: Client, persistent: int, ephemeral: int, answers: MemoryClass | None = None) -> None:
    rig.do(commands.GrantMemory(client.job.id, Memory(persistent, ephemeral), answers))


async def until(condition: Callable[[], object]) -> None:
    """For what nobody tells: what a thread, another process or the kernel does."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - it looks from outside
            await asyncio.sleep(0.002)
