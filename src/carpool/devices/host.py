"""The host device: real memory of the machine, as memfds of a fixed total capacity.

Lanes are in `carpool.devices.host_stores`.  A bank is a sparse file of `BANK_WINDOWS` windows, which libcarpool maps at
several offsets; only pages that were touched exist, and `used_bytes` counts these pages.  A store has room for a
bank.  Weights of services lie in banks of their own, one model in each, whose pages the next model of the owner takes
over.  No file changes its size: all are sealed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence

from carpool.core.model import GIB, DeviceId, LaneId
from carpool.devices import memfd
from carpool.devices.banks import BankedDevice, Banks
from carpool.devices.base import BankId, DeviceError, Extent, Overuse
from carpool.devices.host_stores import Lanes, Stores

BANK_WINDOWS = 16


class HostDevice(BankedDevice):
    """Implements `carpool.devices.base.DeviceBackend`.  Lanes and banks are one file each."""

    kind = "host"

    def __init__(self, device: DeviceId, capacity: int) -> None:
        window = memfd.round_up(capacity, GIB)
        banks = Banks(f"carpool-{device}-bank", SparseFiles(BANK_WINDOWS * window))
        super().__init__(device, capacity, window, banks, Stores(device, BANK_WINDOWS * window))
        self.weights = WeightBanks(f"carpool-{device}-weights", SparseFiles(window))
        self._lanes = Lanes(device, capacity)

    # Lanes

    def open_lane(self, lane: LaneId, size: int) -> None:
        """See `DeviceBackend`."""
        self._lanes.open(lane, size)

    def resize_lane(self, lane: LaneId, size: int) -> None:
        """See `DeviceBackend`."""
        self._lanes.resize(lane, size)

    def close_lane(self, lane: LaneId) -> None:
        """See `DeviceBackend`."""
        self._lanes.close(lane)

    def lane_files(self, lane: LaneId) -> tuple[Extent, ...]:
        """See `DeviceBackend`."""
        return (self._lanes.file(lane),)

    def lane_size(self, lane: LaneId) -> int:
        """See `DeviceBackend`."""
        return self._lanes.file(lane).size

    def check_lane(self, fd: int) -> None:
        """See `PagedDevice`."""
        self._lanes.check(fd)

    def adopt_lane(self, lane: LaneId, files: Sequence[Extent]) -> None:
        """See `DeviceBackend`."""
        self._lanes.adopt(lane, files)

    # Banks: their pages come when they are touched

    def grow_bank(self, bank: BankId, size: int) -> None:
        """Check that the bank is known: its pages come when they are touched.  Raises DeviceError."""
        self._banks.files(bank)

    def cut_bank(self, bank: BankId, size: int) -> None:
        """Check that the bank is known.  Raises DeviceError."""
        self._banks.files(bank)  # the job itself gives pages back

    def used_bytes(self) -> int:
        """See `DeviceBackend`."""
        return self._lanes.used() + self._banks.used() + self.weights.used()

    def surplus(self, usable: int) -> Callable[[], None] | None:
        """See `DeviceBackend`."""
        excess = self.used_bytes() - usable
        return self.weights.emptying(excess) or super().surplus(usable) if excess > 0 else None

    def overuse(self, granted: Mapping[BankId, int]) -> Overuse:
        """See `PagedDevice`."""
        banks = self._banks.overuse(granted, self.capacity)
        return Overuse(self._lanes.overuse(), banks, self.weights.overuse({}, self.capacity))

    def abandon_bank(self, bank: BankId) -> None:
        """See `PagedDevice`."""
        self._banks.abandon(bank)

    def close(self) -> None:
        """Close all descriptors."""
        self._lanes.close_all()
        self._banks.close()
        self.weights.close()
        self._stores.close()


class SparseFiles:
    """Banks of one sparse file of ``size`` bytes each.  Implements `carpool.devices.banks.BufferMemory`."""

    def __init__(self, size: int) -> None:
        self._size = size

    def create(self, name: str) -> list[Extent]:
        """Return a new file, all holes.  Raises DeviceError."""
        return [Extent(memfd.create(name, self._size, sealed=True), self._size)]

    def used(self, files: Sequence[Extent]) -> int:
        """Return the bytes of the pages that the files have."""
        return sum(memfd.pages(file.fd) for file in files)

    def emptying(self, files: list[Extent], size: int) -> Callable[[], None]:
        """See `BufferMemory`."""
        fd = os.dup(files[0].fd)  # the bank may be closed meanwhile
        return lambda: memfd.punch_and_close(fd, size)

    def check(self, files: Sequence[Extent], known: Sequence[Extent] | None) -> None:
        """See `BufferMemory`."""
        if len(files) != 1 or not memfd.is_sealed(files[0].fd, self._size):
            raise DeviceError("wrong size or seals")
        if known and os.fstat(known[0].fd).st_ino != os.fstat(files[0].fd).st_ino:
            raise DeviceError("another file")

    def adopt(self, files: list[Extent], more: Sequence[Extent]) -> None:
        """See `BufferMemory`."""
        for file in more:
            if files:
                os.close(file.fd)
            else:
                files.append(file)

    def close(self, files: Sequence[Extent]) -> None:
        """Close the files."""
        for file in files:
            os.close(file.fd)


class WeightBanks(Banks):
    """Banks of sparse files, each for as many bytes as the weights in it have."""

    def __init__(self, name: str, memory: SparseFiles) -> None:
        super().__init__(name, memory)
        self._sizes: dict[BankId, int] = {}
        self._trimmed: set[BankId] = set()  # banks that no weights get before trimming is done
        self._lock = threading.Lock()  # guards both, and decisions that depend on both

    def take_for(self, owner: int, size: int) -> BankId:
        """Take a free bank, or a new one, for weights; earlier weights may have left content.  Raises DeviceError."""
        with self._lock:
            bank = self.take(owner, size, None)
            self._sizes[bank] = memfd.round_up(size, memfd.PAGE)
        return bank

    def hold_for(self, bank: BankId, size: int) -> None:
        """Mark a bank as held: weights of ``size`` bytes were found in it.  Raises DeviceError."""
        self.hold(bank)
        self._sizes[bank] = memfd.round_up(size, memfd.PAGE)

    def emptying(self, size: int) -> Callable[[], None] | None:
        """Return a call that empties a free bank, or else takes pages beyond the weights from a bank; else None."""
        return super().emptying(size) or self._trimming(size)

    def _trimming(self, size: int) -> Callable[[], None] | None:
        for bank, needed in self._sizes.items():
            files = self.files(bank)
            beyond = sum(end - max(begin, needed) for begin, end in memfd.extents(files[0].fd) if end > needed)
            if beyond:
                self._trimmed.add(bank)
                work = self._memory.emptying(files, min(size, beyond))
                return lambda: self._trim(bank, work)
        return None

    def _trim(self, bank: BankId, work: Callable[[], None]) -> None:
        """Trim a bank, in a thread.  `free` may be called at any moment: the later of the two gives the bank back."""
        try:
            work()
        finally:
            with self._lock:
                self._trimmed.discard(bank)
                if bank not in self._sizes:
                    super().free(bank)

    def free(self, bank: BankId) -> None:
        """Free a bank, also while it is trimmed."""
        with self._lock:
            self._sizes.pop(bank, None)
            if bank not in self._trimmed:
                super().free(bank)

    def abandon(self, bank: BankId) -> None:
        """See `Banks.abandon`."""
        with self._lock:
            self._sizes.pop(bank, None)
            super().abandon(bank)

    def overuse(self, allowed: Mapping[BankId, int], most: int) -> dict[BankId, int]:
        """See `Banks.overuse`; bytes that weights need are allowed, too."""
        return super().overuse(self._sizes | dict(allowed), most)
