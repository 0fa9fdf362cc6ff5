"""What the protocol of devices brings along."""

from __future__ import annotations

import pytest

from carpool.devices.base import DeviceError, Extent, single


def test_a_packet_brings_one_file() -> None:
    assert single([Extent(5, 4096)]) == 5
    for files in ([], [Extent(5, 4096), Extent(6, 4096)]):
        with pytest.raises(DeviceError, match="pieces"):
            single(files)
