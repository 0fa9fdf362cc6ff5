"""The machine behind host devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from carpool.core.model import GIB, MIB
from carpool.telemetry.host import GPUS_ONLY, NO_COUNTER, Host, Powercap
from carpool.telemetry.readers import HostReader, Target
from carpool.telemetry.samples import QUANTITIES, CapabilityLevel, Sample, Unmeasurable


def write(proc: Path, busy: int, idle: int, available_kib: int = 8 << 20) -> None:
    """Every time differs and moves on, so that a wrong field shows.  The last two are part of the first."""
    iowait, steal = idle // 5, busy // 5
    user = busy - steal - 6
    first = f"cpu  {user} 0 1 {idle - iowait} {iowait} 2 3 {steal} {user // 2} {user // 3}"
    (proc / "stat").write_text(f"{first}\ncpu0 1 2 3 4\n")
    (proc / "meminfo").write_text(f"MemTotal: 16777216 kB\nMemAvailable: {available_kib} kB\n")


def look(host: Host) -> Sample:
    host.look()
    return host.sample(5, 4 * GIB, GIB)


def test_how_busy_the_processors_are_and_what_is_free(tmp_path: Path) -> None:
    host = Host(tmp_path)
    write(tmp_path, busy=1000, idle=3000)
    first = look(host)
    assert first.busy_ppm is None and first.missing["busy_ppm"] == "needs a second measurement"
    assert first.free_bytes == 3 * GIB
    write(tmp_path, busy=1250, idle=3750, available_kib=100 << 10)
    assert look(host).busy_ppm == 250_000
    assert look(host).busy_ppm == 250_000  # no time has passed: as before
    assert look(host).free_bytes == 100 * MIB, "what is free is also there"
    write(tmp_path, busy=2250, idle=3740)
    assert look(host).busy_ppm == 1_000_000  # waiting for disks is not counted exactly: it may go back


def test_everything_else_is_said_to_be_missing(tmp_path: Path) -> None:
    write(tmp_path, busy=1000, idle=3000)
    host = Host(tmp_path, Powercap(tmp_path))
    host.look()
    sample = host.sample(5, 4 * GIB, GIB, {"sm_active_ppm": 1, "processes": ()})
    assert sample.level is CapabilityLevel.HOST
    assert {name for name in QUANTITIES if getattr(sample, name) is None} == set(sample.missing)
    assert (sample.missing["temperature_c"], sample.missing["power_mw"]) == (GPUS_ONLY, NO_COUNTER)
    assert sample.sm_active_ppm == 1 and "bandwidth" in sample.missing["dram_active_ppm"]


def test_this_machine() -> None:
    reader = HostReader(lambda: 42)
    found = reader.read([Target("host0", GIB, 7), Target("host1", GIB, 0)], {})["host0"]
    assert isinstance(found, Sample)
    assert (found.taken_us, found.used_bytes, found.level) == (42, 7, CapabilityLevel.HOST)
    assert 0 < (found.free_bytes or 0) <= GIB - 7


@pytest.mark.parametrize("name", ["stat", "meminfo"])
def test_both_files_are_read(tmp_path: Path, name: str) -> None:
    write(tmp_path, busy=1000, idle=3000)
    (tmp_path / name).unlink()
    found = HostReader(lambda: 42, Host(tmp_path)).read([Target("host0", GIB, 7)], {})["host0"]
    assert isinstance(found, Unmeasurable) and str(found) == "cannot read /proc: No such file or directory"


def zone(root: Path, name: str, energy_uj: int, most: int = 10_000_000) -> None:
    (root / name).mkdir(parents=True, exist_ok=True)
    (root / name / "energy_uj").write_text(f"{energy_uj}\n")
    (root / name / "max_energy_range_uj").write_text(f"{most}\n")


def test_energy_of_all_packages_since_the_first_look(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", 1_000_000)
    zone(tmp_path, "intel-rapl:1", 9_000_000)
    zone(tmp_path, "intel-rapl:0:0", 77)  # cores: part of the package
    powercap = Powercap(tmp_path)
    assert powercap.read(0) == ({"energy_mj": 0}, {"power_mw": "needs a second measurement"})
    zone(tmp_path, "intel-rapl:0", 3_000_000)
    zone(tmp_path, "intel-rapl:1", 1_000_000)  # begun anew after 10 J
    assert powercap.read(500_000) == ({"energy_mj": 4000, "power_mw": 8000}, {})


def test_a_counter_of_energy_that_only_root_may_read(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", 1_000_000)
    (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    found, why = Powercap(tmp_path).read(0)
    assert found == {} and why["power_mw"] == "the counter of energy cannot be read: No such file or directory"
    assert set(why) == {"power_mw", "energy_mj"}
