"""Memory for weights in a process without Carpool."""

from __future__ import annotations

import os

import pytest

from carpool.serve.model import seat_device
from carpool.serve.model.seat_device import SeatRefused
from carpool.serve.model.weights_device import Plain, ServiceSeat, WeightsDemand, WeightsMemory, of_process


def demand(key: int, size: int = 4096) -> WeightsDemand:
    return WeightsDemand(key, size, reload_us=1, compute_us=0, deadline_us=None)


def test_memory_per_key() -> None:
    device = of_process()
    assert isinstance(device, Plain)
    one, other = device.place(demand(1)).file, device.place(demand(2, 8192)).file
    assert [os.fstat(fd).st_size for fd in (one, other)] == [4096, 8192]
    device.take()
    device.release()
    assert device.place(demand(1)) == WeightsMemory(one, address=None)
    os.pwrite(one, b"x", 0)
    device.forget(1)
    device.forget(3)
    assert os.pread(device.place(demand(1)).file, 1, 0) == b"\0"
    for key in (1, 2):
        device.forget(key)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(other)


def test_given_memory() -> None:
    given = os.memfd_create("given")
    device = Plain({5: given})
    assert device.place(demand(5)) == WeightsMemory(given)
    device.forget(5)


def test_no_memory() -> None:
    with pytest.raises(SeatRefused, match="bytes of device memory"):
        Plain().place(demand(1, 2**63))


def test_a_job_keeps_the_file_and_asks_for_the_address_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = os.memfd_create("first"), os.memfd_create("second")
    files, addresses = iter([first, None, None, second]), iter([1 << 40, 1 << 40, 1 << 41, None])
    monkeypatch.setattr(seat_device, "place", lambda key, size, **others: next(files))
    monkeypatch.setattr(seat_device, "address", lambda key: next(addresses))
    device = ServiceSeat()
    given = [device.place(demand(1)) for _ in range(4)]
    assert given == [
        WeightsMemory(first, 1 << 40),
        WeightsMemory(first, 1 << 40),
        WeightsMemory(first, 1 << 41),
        WeightsMemory(second, None),
    ]
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(first)
    os.close(second)
