"""Names under which shims keep extents."""

from __future__ import annotations

import pytest

from carpool.core.model import MemoryClass
from carpool.daemon.seats.kept_fds import extent_names, kept_extents, memory_name
from carpool.devices.base import DeviceError, Extent

BANK = memory_name(MemoryClass.PERSISTENT, "cuda0", 3)


def test_names_say_where_an_extent_lies() -> None:
    assert extent_names(BANK, [32, 8]) == ["bank:cuda0:3:0:32", "bank:cuda0:3:32:8"]
    assert extent_names(memory_name(MemoryClass.EPHEMERAL, "cuda0", 7), [4]) == ["lane:7:0:4"]


def test_extents_are_found_in_order() -> None:
    kept = {"bank:cuda0:3:32:8": 5, "lane:3:0:4": 6, "bank:cuda0:3:0:32": 7, "bank:cuda0:33:0:2": 8}
    assert kept_extents(BANK, kept) == [Extent(7, 32), Extent(5, 8)]
    assert kept_extents("lane:9", kept) == []


@pytest.mark.parametrize("name", ["bank:cuda0:3:8:8", "bank:cuda0:3:0:0", "bank:cuda0:3:x:8", "bank:cuda0:3:8"])
def test_gaps_and_nonsense_are_refused(name: str) -> None:
    with pytest.raises((DeviceError, ValueError)):
        kept_extents(BANK, {name: 5})
