"""A stand-in for libcarpool in tests: a job that speaks the seat protocol from Python, without tensors or traps.

It attaches over CARPOOL_JOB_FD, maps its board, takes and passes turns and asks for memory, exactly as
docs/internals/contract.md says libcarpool does.  Each argument is a step, see `STEPS`.  A job with a helper thread
(step `help`) moves its memory when it is asked to, and lets its turn go when it is forced to or watched while idle.

Standard library, and of Carpool what a seat is: hundreds of these start in a run of the tests.
"""

# ruff: noqa: PTH100, PTH118, PTH120 - pathlib would cost a sixth of the start-up time

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(1, os.path.join(sys.path[0], "..", "..", "src"))
from fakeextents import BANK, LANE, ExtentMover
from fakemover import Mover

from carpool.protocol.seat import (
    BOARD_BYTES,
    FIELDS,
    HEADER_BYTES,
    PACKET_BYTES,
    PROTOCOL,
    SEAT_BYTES,
    Grow,
    OffloadState,
    Packet,
    PacketType,
    Seat,
    Yield,
)

SYS_FUTEX = {"x86_64": 202, "aarch64": 98}[os.uname().machine]
FUTEX_WAIT, FUTEX_WAKE, EVERYBODY = 0, 1, 2**31 - 1
CLAIMED = 10_000  # iterations at once
CAUSE_BOUNDARY, CAUSE_EARLY, CAUSE_FORCED = 1, 2, 3
CLASSES = {"p": (0, "p_limit", "p_peak"), "e": (1, "e_limit", "e_peak")}
#: In `grow_class`: the request stands for all limits.
PACKS = 2048
T = TypeVar("T")
_syscall = ctypes.CDLL(None, use_errno=True).syscall


def contents(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def now_us() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


class FakeJob:
    def __init__(self) -> None:
        self.channel = socket.socket(fileno=int(os.environ["CARPOOL_JOB_FD"]))
        self.gate = threading.Lock()  # between the job and its helper thread: turns, and where its memory is
        self.idle = threading.Event()

    # Attaching

    def attach(self, version: str = str(PROTOCOL)) -> None:
        self.send(PacketType.HELLO, int(version))
        data, self.fds, _, _ = socket.recv_fds(self.channel, PACKET_BYTES, 8)
        answer = Packet.decode(data)
        if answer.type is not PacketType.SETUP:
            print(f"refused {answer.a}")
            return
        self.board = mmap.mmap(self.fds[0], BOARD_BYTES)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.board))
        self.seat = Seat(memoryview(self.board), answer.a)
        self.window = answer.b
        self.seat.set("pid", os.getpid())
        assert answer.e == self.seat.get("bank")
        self.extents = ExtentMover(self.seat, self.channel, answer, self.send) if len(self.fds) == 1 else None
        if self.extents is None:
            self.mover = Mover(self.seat, self.fds[2], self.fds[3])
        print(f"attached lane={answer.c}")

    # Turns

    def turn(self) -> None:
        """Touch device memory: wait for a turn unless we hold one."""
        while True:
            with self.gate:
                if self.seat.get("turn"):
                    self.open()
                    return
                self.seat.set("want", 1)
                self.send(PacketType.WANT)
            self.wait_while("turn", 0)

    def open(self) -> None:
        """Use the turn: everything that is in the store comes back, into the bank that the seat names."""
        self.seat.set("want", 0)
        if self.extents is not None:
            self.extents.follow()
            return
        while self.mover.bank != self.seat.get("bank"):
            data, fds, _, _ = socket.recv_fds(self.channel, PACKET_BYTES, 1)
            self.mover.take_bank(Packet.decode(data), fds)
        if self.mover.restore():
            print(f"restored into bank {self.mover.bank}")

    def iterate(self, count: str = "1") -> None:
        """Iterations of nothing, giving way at each boundary when asked to."""
        for _ in range(int(count)):
            self.finish()
            if self.seat.get("yield"):
                self.release()

    def rounds(self, count: str) -> None:
        """Iterations that give way every time."""
        for _ in range(int(count)):
            self.finish()
            self.release()

    def finish(self) -> None:
        """An iteration of nothing."""
        self.turn()
        self.seat.set("iterations", self.seat.get("iterations") + 1)
        self.seat.set("boundary_us", now_us())

    def claim(self, path: str) -> None:
        """Hold a turn, and count iterations of as many microseconds as the file says, until it says 0.

        The time is claimed, not spent, and so much of it at once that what really passes does not matter.
        """
        self.turn()
        while each_us := int(contents(path)):
            self.seat.set("held_us", self.seat.get("held_us") + CLAIMED * each_us)
            self.seat.set("iterations", self.seat.get("iterations") + CLAIMED)
            time.sleep(0.005)

    def release(self, cause: int = CAUSE_BOUNDARY) -> None:
        with self.gate:
            if not self.seat.get("turn"):
                return  # the helper thread was faster
            slot = self.let_go(cause)
            kind = PacketType.PASSED if slot else PacketType.RELEASED
            number = self.seat.get("passed_seq")
            self.send(kind, cause, *((slot - 1, number) if slot else (number, 0)))
            if self.seat.get("want"):  # the turn went before the other thread could use it, and it still waits
                self.send(PacketType.WANT)

    def let_go(self, cause: int = CAUSE_BOUNDARY) -> int:
        """Everything of a hand-over except the packet."""
        seat = self.seat
        seat.set("held_us", seat.get("held_us") + now_us() - seat.get("turn_start_us"))
        seat.set("cause", cause)
        seat.set("yield", 0)
        seat.set("watch", 0)
        seat.set("turn", 0)
        slot = seat.get("successor")
        seat.set("passed_to", slot)
        seat.set("passed_seq", seat.get("passed_seq") + 1)
        if slot:
            other = Seat(memoryview(self.board), slot - 1)
            other.set("turn_start_us", now_us())
            other.set("turn", 1)
            self.wake(other, "turn")
        return slot

    def die_after_handover(self) -> None:
        """Killed between handing over and telling the daemon."""
        assert self.let_go(), "nobody waits"
        os.kill(os.getpid(), signal.SIGKILL)

    def until_successor(self) -> None:
        """Hold the turn until somebody is named as the next (the daemon writes it without a wake)."""
        self.turn()
        while not self.seat.get("successor"):
            time.sleep(0.001)

    # Memory

    def grow(self, kind: str, total: str) -> None:
        number, limit, peak = CLASSES[kind]
        while self.seat.get(limit) < int(total):
            if self.ask(number, int(total)) == Grow.DENIED:
                print(f"denied {kind} {total}")
                return
        self.seat.set(peak, int(total))
        print(f"granted {kind} {total}")

    def pack(self, total: str) -> None:
        """Ask for so many persistent bytes instead of all limits."""
        answer = self.ask(0, int(total), in_seat=PACKS, in_packet=4)
        limits = self.seat.get("p_limit"), self.seat.get("e_limit")
        print("packed" if answer == Grow.GRANTED else "not packed", *limits)

    def ask(self, number: int, total: int, *, in_seat: int = 0, in_packet: int = 0) -> int:
        """Ask for memory of a class and wait; returns the answer."""
        self.seat.set("grow_class", number | in_seat)
        self.seat.set("grow_total", total)
        sequence = self.seat.get("grow_seq") + 1
        self.seat.set("grow_seq", sequence)
        self.send(PacketType.GROW, number, total, sequence, in_packet)
        while (answered := self.seat.get("grow_ack")) != sequence:
            self.wait_while("grow_ack", answered)
        return self.seat.get("grow_status")

    def touch(self, kind: str, size: str, value: str = "90") -> None:
        """Write to the memory itself: lane or persistent."""
        if kind == "p":
            self.with_memory(lambda: self.write(int(size), int(value)))
        elif self.extents is not None:
            self.with_memory(lambda: self.extents.write(LANE, int(size), int(value)))
        else:
            with mmap.mmap(self.fds[1], int(size)) as memory:
                memory[0 : int(size)] = bytes([int(value)]) * int(size)
        print(f"touched {kind} {size}")

    def check(self, size: str, value: str) -> None:
        """Whether persistent memory holds what was written there."""
        found = self.with_memory(lambda: self.read(int(size)))
        print("intact" if found == {int(value)} else "damaged")

    def write(self, size: int, value: int) -> None:
        if self.extents is not None:
            self.extents.write(BANK, size, value)
        else:
            self.mover.write(size, value)

    def read(self, size: int) -> set[int]:
        return self.mover.read(size) if self.extents is None else self.extents.read(BANK, size)

    def shrink(self, total: str) -> None:
        """Give persistent memory back."""
        self.seat.set("p_used", min(self.seat.get("p_used"), int(total)))
        self.seat.set("p_peak", int(total))
        self.send(PacketType.SHRUNK, CLASSES["p"][0], int(total))

    def until_mapped(self, kind: str, size: str) -> None:
        """Wait until the helper thread has mapped exactly as much."""
        assert self.extents is not None
        while True:
            with self.gate:
                if self.extents.end(CLASSES[kind][0]) == int(size):
                    break
            time.sleep(0.001)
        print(f"mapped {kind} {size}")

    def with_memory(self, action: Callable[[], T]) -> T:
        """Do it in a turn that the helper thread cannot end in the middle: nothing here traps."""
        while True:
            self.turn()
            with self.gate:
                if self.seat.get("turn"):
                    self.open()
                    return action()

    # The helper thread

    def help(self) -> None:
        threading.Thread(target=self.helper, daemon=True).start()

    def helper(self) -> None:
        while True:
            bell = self.seat.get("bell")
            if self.seat.get("turn") and self.seat.get("yield") == Yield.NOW:
                self.release(CAUSE_FORCED)
            elif self.seat.get("turn") and (self.seat.get("watch") or self.seat.get("yield")) and self.idle.is_set():
                time.sleep(self.seat.get("grace_us") / 1e6)
                self.release(CAUSE_EARLY)
            with self.gate:
                self.move()
            self.wait_while("bell", bell)

    def move(self) -> None:
        """What the helper does about a request to move, or to let go of memory, if there is one."""
        if self.extents is not None:
            self.extents.drain()
            return
        if self.seat.get("offload") == OffloadState.DROP:
            self.mover.drop()
            self.seat.set("offload", OffloadState.NO)
        elif self.seat.get("offload") == OffloadState.ASKED and not self.seat.get("turn"):
            error = self.mover.offload()
            self.seat.set("offload", OffloadState.DONE)
            self.send(PacketType.OFFLOADED, error, self.seat.get("stored"))

    def slowly(self, seconds: str) -> None:
        """Moving takes so long per chunk."""
        self.mover.delay_s = float(seconds)

    def fail(self, number: str) -> None:
        """Answer every request to offload with this error (0: none any more)."""
        self.mover.error = int(number)

    def sleep_idle(self) -> None:
        """Off the device for good."""
        self.idle.set()
        print("idle")
        signal.pause()

    # What no job does that keeps to the protocol

    def small_channel(self) -> None:
        """Its kernel keeps a few packets only: whoever sends more waits until the daemon reads."""
        self.channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 0)

    def flood(self, count: str) -> None:
        """Ask for memory without waiting for answers."""
        for number in range(1, int(count) + 1):
            self.send(PacketType.GROW, 0, (number % 100 + 1) << 16, number, 1)
        print(f"sent {count} requests")

    def junk(self, count: str) -> None:
        """Send what is no packet, and packets of no known type."""
        for number in range(int(count)):
            self.channel.send(b"junk" if number % 2 else Packet(PacketType.SETUP, os.getpid()).encode())
        print(f"sent {count} pieces of junk")

    # The rest

    def note(self, name: str, value: str) -> None:
        """Write a word of the seat."""
        self.seat.set(name, int(value))

    def say(self, text: str) -> None:
        print(text)

    def listen(self, fifo: str) -> None:
        """Wait until somebody writes to a pipe in the file system."""
        contents(fifo)

    def pause(self) -> None:
        signal.pause()

    def crash(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def fork_die(self) -> None:
        """The attached process dies, its parent goes on."""
        if os.fork() == 0:
            self.attach()
            self.turn()
            os.kill(os.getpid(), signal.SIGKILL)
        os.wait()

    def exit(self, code: str) -> None:
        sys.exit(int(code))

    def send(self, kind: PacketType, *numbers: int) -> None:
        self.channel.send(Packet(kind, os.getpid(), *numbers).encode())

    def word(self, seat: Seat, name: str) -> int:
        return self.address + HEADER_BYTES + seat.slot * SEAT_BYTES + FIELDS[name][0]

    def wake(self, seat: Seat, name: str) -> None:
        self.futex(seat, name, FUTEX_WAKE, EVERYBODY)

    def wait_while(self, name: str, value: int) -> None:
        while self.seat.get(name) == value:
            self.futex(self.seat, name, FUTEX_WAIT, value)

    def futex(self, seat: Seat, name: str, operation: int, value: int) -> None:
        address = ctypes.c_void_p(self.word(seat, name))
        _syscall(SYS_FUTEX, address, operation, ctypes.c_uint32(value), None, None, 0)


STEPS = {name for name in vars(FakeJob) if not name.startswith("_")}


def main() -> None:
    job = FakeJob()
    for step in sys.argv[1:]:
        name, *arguments = step.split(":")
        assert name in STEPS, step
        getattr(job, name.replace("-", "_"))(*arguments)


if __name__ == "__main__":
    main()
