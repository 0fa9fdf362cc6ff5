"""The part of `fakejob.py` that moves memory between its bank and its store, as src/native/abi/seat.h says."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import time

from fakeextents import values

from carpool.protocol.seat import CHUNK, IN_DEVICE, IN_STORE, Packet, PacketType, Seat

F_OFD_SETLKW = 38


class Mover:
    """Content of a fake job: the first ``used`` bytes of its bank."""

    def __init__(self, seat: Seat, bank_fd: int, store_fd: int) -> None:
        self.seat = seat
        self.bank = seat.get("bank")
        self.bank_fd = bank_fd
        self.states = os.fstat(bank_fd).st_size
        # A description of its own, so that the lock is this process's and not its shim's as well.
        self.store_fd = os.open(f"/proc/self/fd/{store_fd}", os.O_RDWR | os.O_CLOEXEC)
        self.used = 0
        self.delay_s = 0.0  # at each chunk
        self.error = 0  # to answer

    def lock(self, kind: int) -> None:
        fcntl.fcntl(self.store_fd, F_OFD_SETLKW, struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 1, 0))

    def chunks(self, state: int) -> list[int]:
        states = os.pread(self.store_fd, self.states // CHUNK, self.states)
        return [chunk for chunk in range(-(-self.used // CHUNK)) if states[chunk] == state]

    def offload(self) -> int:
        """0 or an errno."""
        self.lock(fcntl.F_WRLCK)
        try:
            if self.error:
                self.seat.set("offload_error", self.error)
                return self.error
            for chunk in self.chunks(IN_DEVICE):
                self._copy(self.bank_fd, self.store_fd, chunk, IN_STORE)
            self.seat.set("stored", len(self.chunks(IN_STORE)) * CHUNK)
            self.seat.set("offloaded", 1)
            return 0
        finally:
            self.lock(fcntl.F_UNLCK)

    def restore(self) -> int:
        """How many chunks came back."""
        self.lock(fcntl.F_WRLCK)
        moved = self.chunks(IN_STORE)
        for chunk in moved:
            self._copy(self.store_fd, self.bank_fd, chunk, IN_DEVICE)
        self.seat.set("stored", 0)
        self.seat.set("offloaded", 0)
        self.lock(fcntl.F_UNLCK)
        return len(moved)

    def take_bank(self, packet: Packet, fds: list[int]) -> None:
        if packet.type is PacketType.BANK:
            os.close(self.bank_fd)
            (self.bank_fd,), self.bank = fds, packet.a
        else:
            for fd in fds:
                os.close(fd)

    def drop(self) -> None:
        from carpool.devices import memfd  # imports as much as all the rest, and few jobs get here

        memfd.punch(self.store_fd, self.states)

    def write(self, size: int, value: int) -> None:
        self.used = max(self.used, size)
        with mmap.mmap(self.bank_fd, size) as memory:
            memory[:] = bytes([value]) * size

    def read(self, size: int) -> set[int]:
        with mmap.mmap(self.bank_fd, size) as memory:
            return values(memory[:])

    def _copy(self, source: int, target: int, chunk: int, state: int) -> None:
        time.sleep(self.delay_s)
        data = os.pread(source, CHUNK, chunk * CHUNK)
        assert os.pwrite(target, data, chunk * CHUNK) == CHUNK, errno.ENOSPC
        counter = "out_bytes" if state == IN_STORE else "in_bytes"
        self.seat.set(counter, self.seat.get(counter) + CHUNK)
        self.seat.set(counter.replace("bytes", "us"), self.seat.get(counter.replace("bytes", "us")) + 1)
        os.pwrite(self.store_fd, bytes([state]), self.states + chunk)
