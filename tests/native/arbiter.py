"""A stand-in for the daemon: hands one lane's turn round among processes that carry libcarpool.

It exists so that the library can be tested without the daemon.  It grants every request for memory up to ``capacity``
and gives turns first come, first served, from the moment when all jobs wait for their first.  So short jobs overlap,
however busy the machine is.

Oversubscribed, it offloads every job whose turn has ended, overwrites the bank and gives it to the next one.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from carpool.protocol.seat import (
    BOARD_BYTES,
    BOARD_MAGIC,
    CHUNK,
    HEADER_BYTES,
    PROTOCOL,
    SEAT_BYTES,
    OffloadState,
    Packet,
    PacketType,
    Seat,
)
from tests.live import python_path

#: A job that imports PyTorch on a busy machine says nothing for tens of seconds; how long all of it takes is no matter.
SILENCE_S = 120.0
ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "src" / "carpool" / "_native" / "libcarpool.so"
GIB = 1 << 30
_libc = ctypes.CDLL(None, use_errno=True)


def futex_wake(address: int) -> None:
    _libc.syscall(202 if os.uname().machine == "x86_64" else 98, ctypes.c_void_p(address), 1, 0x7FFFFFFF, None, None, 0)


#: Becomes the rest of its command line, as the shim's child does.
MAIN_PROCESS = ["/bin/sh", "-c", 'CARPOOL_JOB_PID=$$ exec "$@"', "sh"]


@dataclass
class Job:
    slot: int
    process: subprocess.Popen[bytes]
    channel: socket.socket
    seat: Seat
    store: int
    bank: int  # number; while it is offloaded the last one that it had
    attached: bool = False
    waiting: bool = False
    passed: int = 0
    offloads: int = 0
    packets: list[PacketType] = field(default_factory=list)


class Arbiter:
    """``always_yield``: ask each holder to give way at its next boundary; the next turn begins when all wait for it."""

    def __init__(
        self,
        capacity: int = GIB,
        grace_us: int = 20_000,
        always_yield: bool = True,
        forced_us: int = 0,
        oversubscribed: bool = False,
    ) -> None:
        self.capacity, self.grace_us, self.always_yield, self.forced_us = capacity, grace_us, always_yield, forced_us
        self.oversubscribed = oversubscribed
        self.window = (capacity + GIB - 1) // GIB * GIB
        self.board_fd = os.memfd_create("board")
        os.ftruncate(self.board_fd, BOARD_BYTES)
        self.map = mmap.mmap(self.board_fd, BOARD_BYTES)
        self.view = memoryview(self.map)
        self.view[0:8] = BOARD_MAGIC.to_bytes(4, "little") + PROTOCOL.to_bytes(4, "little")
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.lane_fd = os.memfd_create("lane")
        os.ftruncate(self.lane_fd, self.window)
        self.banks: list[int] = []
        self.leaving: Job | None = None  # asked to offload
        self.jobs: list[Job] = []
        self.queue: list[Job] = []
        self.holder: Job | None = None
        self.turns = 0
        self.met = False
        self.forced_at = 0.0
        self.selector = selectors.DefaultSelector()

    def start(self, argv: Sequence[str], env: dict[str, str] | None = None, **popen: object) -> Job:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        slot = len(self.jobs)
        environment = {
            **os.environ,
            "LD_PRELOAD": str(LIBRARY),
            "CARPOOL_JOB_FD": str(theirs.fileno()),
            "CARPOOL_JOB": "1",
            "CARPOOL_HOME": "/nowhere",
            "OMP_WAIT_POLICY": "passive",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": python_path(ROOT / "src"),
            **(env or {}),
        }
        process = subprocess.Popen(
            [*MAIN_PROCESS, sys.executable, *argv],
            env=environment,
            pass_fds=[theirs.fileno()],
            **popen,  # type: ignore[call-overload]
        )
        theirs.close()
        store = os.memfd_create("store")
        os.ftruncate(store, 16 * self.window + 16 * self.window // CHUNK)
        job = Job(slot, process, ours, Seat(self.view, slot), store, self.new_bank())
        self.jobs.append(job)
        self.selector.register(ours, selectors.EVENT_READ, job)
        return job

    def new_bank(self) -> int:
        self.banks.append(os.memfd_create("bank"))
        os.ftruncate(self.banks[-1], 16 * self.window)
        return len(self.banks) - 1

    def seat_address(self, job: Job, offset: int = 0) -> int:
        return self.address + HEADER_BYTES + SEAT_BYTES * job.slot + offset

    def ring(self, job: Job) -> None:
        job.seat.set("bell", (job.seat.get("bell") + 1) & 0xFFFFFFFF)
        futex_wake(self.seat_address(job, 4))

    def grant(self, job: Job) -> None:
        job.seat.set("successor", 0)
        job.seat.set("yield", 0)
        job.seat.set("turn_start_us", time.monotonic_ns() // 1000)
        job.seat.set("turn", 1)
        futex_wake(self.seat_address(job, 0))
        self._holds(job)

    def _holds(self, job: Job) -> None:
        self.turns += 1
        self.holder = job
        self.forced_at = time.monotonic() + self.forced_us / 1e6
        if job in self.queue:
            self.queue.remove(job)
        job.waiting = False
        self.arrange()

    def arrange(self) -> None:
        """Name the successor and ask the holder to give way."""
        if self.leaving is not None:
            return
        if self.holder is None:
            self.met = self.all_wait() or (self.met and not self.always_yield)
            if self.queue and self.met:
                self.grant(self.queue[0])
            return
        if self.queue and not self.oversubscribed:  # otherwise the next one is not on the device
            self.holder.seat.set("successor", self.queue[0].slot + 1)
        if self.always_yield and self.holder.seat.get("yield") == 0:
            self.holder.seat.set("yield", 1)
            self.ring(self.holder)

    def all_wait(self) -> bool:
        """All that live."""
        return len(self.queue) == len(self.selector.get_map())

    def offload(self, job: Job) -> None:
        self.leaving = job
        job.seat.set("offload", OffloadState.ASKED)
        self.ring(job)

    def offloaded(self, job: Job, packet: Packet) -> None:
        """Overwrite the bank of ``job``, so that a missing restore shows; sometimes it gets another bank."""
        assert packet.a == 0 and job.seat.get("offloaded") == 1, (packet, job.seat.get("offload_error"))
        assert job.seat.get("stored") == packet.b <= job.seat.get("store_bytes")
        job.seat.set("offload", OffloadState.NO)
        job.offloads += 1
        self.leaving = None
        for window in range(4):
            garbage = random.randbytes(1 << 12) * (job.seat.get("p_peak") // 4096 + 1 if window == 0 else 512)
            os.pwrite(self.banks[job.bank], garbage, window * self.window)
        if job.offloads % 3 == 0:
            job.bank = self.new_bank()
            job.seat.set("bank", job.bank)
            change = Packet(PacketType.BANK, 0, job.bank)
            socket.send_fds(job.channel, [change.encode()], [self.banks[job.bank]])
        self.arrange()

    def answer(self, job: Job, packet: Packet) -> None:
        total = sum(j.seat.get("p_limit") for j in self.jobs if j.process.returncode is None and j is not job)
        p, e = job.seat.get("p_limit"), job.seat.get("e_limit")
        p, e = (max(p, packet.b), e) if packet.a == 0 else (p, max(e, packet.b))
        lane = max([e] + [j.seat.get("e_limit") for j in self.jobs if j.process.returncode is None])
        granted = total + p + lane <= self.capacity
        if granted:
            job.seat.set("p_limit", p)
            job.seat.set("e_limit", e)
        job.seat.set("grow_status", 1 if granted else 2)
        job.seat.set("grow_ack", packet.c)
        futex_wake(self.seat_address(job, 52))

    def sync(self) -> None:
        """Packets of different jobs may arrive in any order; the seats say what has really happened.

        A job whose turn has ended leaves before anybody has the next one: WANT of another thread may come before
        RELEASED, and whoever had a turn meanwhile would leave, too, and end the wait for the first.
        """
        while self.holder is not None and self.holder.seat.get("passed_seq") > self.holder.passed:
            job = self.holder
            job.passed = job.seat.get("passed_seq")
            self.holder = None
            if self.oversubscribed:
                self.offload(job)
            elif job.seat.get("passed_to"):
                self._holds(self.jobs[job.seat.get("passed_to") - 1])

    def handle(self, job: Job, packet: Packet) -> None:
        job.packets.append(packet.type)
        self.sync()
        if packet.type is PacketType.HELLO:
            job.seat.clear()
            job.seat.set("grace_us", self.grace_us)
            job.seat.set("bank", job.bank)
            job.attached = True
            setup = Packet(PacketType.SETUP, 0, job.slot, self.window, 0, self.capacity, job.bank)
            fds = [self.board_fd, self.lane_fd, self.banks[job.bank], job.store]
            socket.send_fds(job.channel, [setup.encode()], fds)
        elif packet.type in (PacketType.WANT, PacketType.URGENT):
            if job not in self.queue:
                self.queue.append(job)
            self.arrange()
        elif packet.type is PacketType.OFFLOADED:
            self.offloaded(job, packet)
        elif packet.type in (PacketType.RELEASED, PacketType.PASSED):
            self.arrange()
        elif packet.type is PacketType.GROW:
            self.answer(job, packet)

    def gone(self, job: Job) -> None:
        self.selector.unregister(job.channel)
        job.process.wait()
        self.sync()
        if self.holder is not None and self.holder.seat.get("turn") == 0 and self.holder is not job:
            self.grant(self.holder)  # the dead process had named it and died before it could say so
        if job in self.queue:
            self.queue.remove(job)
        if self.leaving is job:
            self.leaving = None
        if self.holder is job:
            self.holder = None
        self.arrange()

    def run(self, look: Callable[[Arbiter], object] = lambda _: None) -> list[int]:
        """Serve until every process has ended; return the exit codes.  ``look`` is called after all that happens.

        Raises AssertionError when nothing has happened for `SILENCE_S`.
        """
        heard = time.monotonic()
        while self.selector.get_map():
            assert time.monotonic() < heard + SILENCE_S, [(j.slot, j.process.poll(), j.packets[-5:]) for j in self.jobs]
            for key, _ in self.selector.select(0.002 if self.forced_us else 1.0):
                heard = time.monotonic()
                try:
                    data = key.data.channel.recv(64)
                except ConnectionResetError:  # it ended and left a packet unread: it never needed its new bank
                    data = b""
                if data:
                    self.handle(key.data, Packet.decode(data))
                else:
                    self.gone(key.data)
            if self.forced_us and self.holder and time.monotonic() > self.forced_at:
                self.holder.seat.set("yield", 2)
                self.ring(self.holder)
                self.forced_at = time.monotonic() + self.forced_us / 1e6
            look(self)
        return [job.process.wait() for job in self.jobs]

    def close(self) -> None:
        for job in self.jobs:
            if job.process.poll() is None:
                job.process.kill()
                job.process.wait()
            job.channel.close()
            os.close(job.store)
        for fd in (self.board_fd, self.lane_fd, *self.banks):
            os.close(fd)
