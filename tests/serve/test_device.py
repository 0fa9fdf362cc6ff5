"""Memory for weights in a process without Carpool."""

from __future__ import annotations

import os

import pytest

from carpool.serve.device import Demand, Plain, Refused, of_process


def demand(key: int, size: int = 4096) -> Demand:
    return Demand(key, size, reload_us=1, compute_us=0, deadline_us=None)


def test_memory_comes_once_per_key() -> None:
    device = of_process()
    one, other = device.place(demand(1)), device.place(demand(2, 8192))
    assert one is not None
    assert other is not None
    assert [os.fstat(fd).st_size for fd in (one, other)] == [4096, 8192]
    assert device.place(demand(1)) is None
    device.release()
    device.forget(1)
    device.forget(3)
    again = device.place(demand(1))
    assert again is not None
    assert not os.path.sameopenfile(one, again)
    for fd in (one, other, again):
        os.close(fd)


def test_given_memory() -> None:
    given = os.memfd_create("given")
    device = Plain({5: given})
    assert device.place(demand(5)) == given
    assert device.place(demand(5)) is None
    os.close(given)


def test_no_memory() -> None:
    with pytest.raises(Refused, match="bytes of device memory"):
        Plain().place(demand(1, 2**63))
