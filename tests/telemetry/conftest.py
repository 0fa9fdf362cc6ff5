"""Fixtures: the stub NVML with values that each test sets, and a made-up /proc."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from carpool.telemetry.process_trees import TICK_US
from tests.emulator.nvml.values import StubNvml, stubbed


class FakeProc:
    """Processes in a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.put(1, 0)

    def put(self, pid: int, parent: int, own: int = 0, waited: int = 0, start: int = 0, private: int = 0) -> None:
        """``own`` and ``waited`` in ticks, of which one third is system time; ``private`` in pages."""
        user, child = own - own // 3, waited - waited // 3
        fields = [*"S", parent, *[0] * 9, user, own // 3, child, waited // 3, 0, 0, 0, 0, start or pid]
        directory = self.root / str(pid)
        directory.mkdir(exist_ok=True)
        (directory / "stat").write_text(f"{pid} ((a) name) {' '.join(map(str, fields))} 0 0\n")
        (directory / "statm").write_text(f"900 {private + 50} 50 1 0 0 0\n")

    def end(self, pid: int) -> None:
        for file in (self.root / str(pid)).iterdir():
            file.unlink()
        (self.root / str(pid)).rmdir()


@pytest.fixture
def stub(nvml_library: Path, tmp_path: Path) -> Iterator[StubNvml]:
    with stubbed(nvml_library, tmp_path / "values") as stub:
        yield stub


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


@pytest.fixture
def proc_with_two_jobs(tmp_path: Path, proc: FakeProc) -> tuple[Path, Callable[[], None]]:
    """A made-up /proc; the call lets a second pass, in which the first job uses a core and the second half of one."""

    def write(second: int) -> None:
        proc.put(10, 1, own=second * 1_000_000 // TICK_US, private=1)
        proc.put(20, 1, own=second * 500_000 // TICK_US, private=1)
        (tmp_path / "stat").write_text(f"cpu  {second * 150} 0 0 {second * 50} 0 0 0 0 0 0\n")
        (tmp_path / "meminfo").write_text("MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n")

    write(0)
    return tmp_path, lambda: write(1)
