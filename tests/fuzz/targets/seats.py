"""Seats, as the daemon reads them, and the ledger that says what of them is believed."""

from __future__ import annotations

import dataclasses
import tempfile
from itertools import count
from pathlib import Path

from carpool.core.model import MemoryClass
from carpool.daemon.seats.ledger import GrantLedger
from carpool.daemon.seats.record import LARGEST, cause_of, is_answered, needed, turn_us, usage_at_end, words_at_end
from carpool.daemon.seats.services import demand_in, is_met
from carpool.protocol.seat import HEADER_BYTES, SEAT_BYTES, Seat

_NOW = 1 << 40
_numbers = count()


def words(data: bytes) -> None:
    """Any words: what the daemon makes of them fits into the journal."""
    record = data[:SEAT_BYTES].ljust(SEAT_BYTES, b"\0")
    seat = Seat(memoryview(bytearray(HEADER_BYTES) + record), 0)
    found = seat.snapshot()
    assert words_at_end(record.hex()) == found
    usage = usage_at_end(found)
    assert all(0 <= value <= LARGEST for value in dataclasses.astuple(usage))
    assert 0 <= turn_us(found, _NOW) <= LARGEST
    assert all(0 <= needed(seat, kind) <= LARGEST for kind in MemoryClass)
    demand = demand_in(found)
    assert demand is None or (0 <= demand.size <= LARGEST and len(demand.weights) == 16)
    is_met(found, found.demand_seq)
    is_answered(seat, found.grow_seq)
    cause_of(found.cause)


def ledger(data: bytes) -> None:
    """Whatever the file holds, the daemon starts, and goes on writing behind what it has understood."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "ledger"
        path.write_bytes(data)
        first = GrantLedger(path)
        first.move(7, 3)
        first.close()
        second = GrantLedger(path)
        second.close()
        assert second.of(7).lane == 3
        assert second._entries == first._entries
