"""Fixtures: the stub NVML with values that each test sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from carpool.telemetry.process_trees import TICK_US
from tests.emulator.nvml.values import StubNvml, stubbed


@pytest.fixture
def stub(nvml_library: Path, tmp_path: Path) -> Iterator[StubNvml]:
    with stubbed(nvml_library, tmp_path / "values") as stub:
        yield stub


@pytest.fixture
def proc_with_two_jobs(tmp_path: Path) -> tuple[Path, Callable[[], None]]:
    """A made-up /proc; the call lets a second pass, in which the first job uses a core and the second half of one."""

    def put(pid: int, ticks: int) -> None:
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        fields = ["S", 1, *[0] * 9, ticks, 0, 0, 0, 0, 0, 0, 0, pid]
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (python) {' '.join(map(str, fields))}\n")
        (tmp_path / str(pid) / "statm").write_text("9 3 2 1 0 0 0\n")

    def write(second: int) -> None:
        put(10, second * 1_000_000 // TICK_US)
        put(20, second * 500_000 // TICK_US)
        (tmp_path / "stat").write_text(f"cpu  {second * 150} 0 0 {second * 50} 0 0 0 0 0 0\n")
        (tmp_path / "meminfo").write_text("MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n")

    write(0)
    return tmp_path, lambda: write(1)
