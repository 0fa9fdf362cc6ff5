"""Bars of memory, figures of load, and lanes in `carpool top`."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.cli.render.output import Output
from carpool.cli.render.top_devices import (
    MemoryPart,
    device_lines,
    lane_line,
    loads,
    memory_bar,
    memory_legend,
    memory_parts,
    painted_lines,
    sparkline,
)
from carpool.cli.render.top_frame import Snapshot, frame
from carpool.protocol.api import LaneInfo, PointInfo, SpanInfo, TelemetryHistory
from tests.cli.standin import device, job

MIB = 1 << 20
SECOND = 1_000_000
CROWDED = device(
    [1], capacity_bytes=1000 * MIB, granted_bytes=532 * MIB, free_bytes=400 * MIB, weights_bytes=200 * MIB
)  # a lane of 32 MiB, and 68 MiB that other programs have


def text(line: list[tuple[str, str]]) -> str:
    return "".join(part for part, _ in line)


def test_a_bar_shows_memory_by_kind() -> None:
    parts = memory_parts(CROWDED)
    assert [(part.letter, part.bytes // MIB) for part in parts] == [
        *[("P", 500), ("L", 32), ("W", 200), ("O", 68), ("·", 200)]
    ]
    assert text(memory_bar(parts, 20)) == "PPPPPPPPPPLWWWWO····"
    assert memory_legend(parts).startswith("P persistent 500 MiB  L lanes 32 MiB  W weights 200 MiB")


def test_an_oversubscribed_and_an_empty_device_have_bars() -> None:
    over = memory_parts(msgspec.structs.replace(CROWDED, granted_bytes=2000 * MIB, free_bytes=0, weights_bytes=0))
    assert text(memory_bar(over, 10)) == "PPPPPPPPPL" and "O other" not in memory_legend(over)
    assert memory_bar([MemoryPart("P", "persistent", "", 0)], 10) == []


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=6), st.integers(6, 60))
def test_a_bar_is_as_long_as_it_should_be_and_leaves_out_nothing(sizes: list[int], width: int) -> None:
    shown = text(memory_bar([MemoryPart(chr(65 + n), "", "", size) for n, size in enumerate(sizes)], width))
    assert len(shown) == (width if any(sizes) else 0)
    assert {*shown} == {chr(65 + n) for n, size in enumerate(sizes) if size}


def test_load_is_drawn_by_steps_of_time() -> None:
    points = [
        PointInfo(n * 10 * SECOND, {"busy_ppm": SpanInfo(0, value, value, 5)}) for n, value in ((3, 10), (5, 990_000))
    ]
    past = TelemetryHistory("host0", 0, 65 * SECOND, 10 * SECOND, "memory", points)
    assert loads(past, 4) == [None, 10, None, 990_000]  # the step that has begun, 6, is not whole
    assert sparkline(loads(past, 4)) == "·▁·█"
    assert loads(msgspec.structs.replace(past, points=[]), 4) == []


def test_a_lane_names_its_holder_and_the_next() -> None:
    lane = LaneInfo(1, 1000, 4 * MIB, [3, 4, 5, 6], 4, [6, 3, 5])
    jobs = {4: job(4, name="a\x1b[31m"), 6: job(6, name="second", array=2, index=77), 5: job(5, array=2, index=78)}
    assert text(lane_line(lane, jobs)) == (
        r"  lane 1  4 MiB  turn: job 4 a\x1b[31m  next: job 2_77 second, then 3, 2_78"
    )
    assert "free" in text(lane_line(LaneInfo(1, 1000, 4 * MIB, [], None, []), {}))


@pytest.mark.parametrize("width", [20, 80, 120])
def test_lines_of_devices_fit_and_their_words_go_on_below(width: int) -> None:
    bar, *texts = device_lines(CROWDED, 3 * MIB, [500_000] * 30, wide=width >= 110)
    drawn = [painted_lines(line, Output(width)) for line in (bar, *texts)]
    assert all(len(part) <= width for lines in drawn for part in lines) and len(drawn[0]) == 1
    for line, lines in zip(texts, drawn[1:], strict=True):
        assert " ".join(lines).split() == text(line).split()


def test_a_frame_has_load_and_what_is_saved() -> None:
    shown = frame(Snapshot(0, "fair", [CROWDED], [job(1)], [], {"host0": [0, 1_000_000]}), Output(), None)
    assert shown[2].endswith("load  █") and "saved: 4 KiB of lanes, 512 MiB offloaded" in shown[3]
