"""``carpool calibrate``: real processes, for a short time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from carpool.cli.main import main
from carpool.cli.simulation import busy_process, measured_cores
from carpool.protocol.paths import Home
from carpool.sim.calibration import calibrated_cores
from carpool.telemetry.host import usable_cores
from tests.cli.conftest import Cli


def calibrated(carpool: Cli, home: Path) -> Any:
    home.mkdir()
    return json.loads(carpool.ok("calibrate", "--time", "50ms", "--json"))


def test_what_is_measured_is_kept(carpool: Cli, home: Path) -> None:
    found = calibrated(carpool, home)
    cores = calibrated_cores(home)
    assert cores is not None and cores.count == usable_cores() == found["cores"]
    assert cores.points[0] == (1, 1_000_000) and found["speeds"]["1"] == 1
    assert found["file"] == str(Home(home).calibration)
    assert found["measured"].startswith(cores.measured) and found["machine"]
    assert list(home.iterdir()) == [Home(home).calibration]


def test_the_table(carpool: Cli, home: Path) -> None:
    home.mkdir()
    header, first, *_ = carpool.ok("calibrate", "--time", "20ms").splitlines()
    assert header.split() == ["BUSY", "JOBS", "SPEED", "TOGETHER", "OF", "EACH"]
    assert first.split() == ["1", "1.00", "1.00"]


@pytest.mark.parametrize(
    ("cores", "numbers"),
    [
        (1, [1]),
        (2, [1, 2]),
        (3, [1, 2, 3]),
        (7, [1, 2, 3, 4, 6, 7]),
        (96, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96]),
    ],
)
def test_how_many_work_at_once(cores: int, numbers: list[int]) -> None:
    assert measured_cores.numbers_up_to(cores) == numbers


def test_several_processes_work_at_the_same_time() -> None:
    told: list[tuple[int, int]] = []
    found = measured_cores.measure(3, 0.01, lambda done, of: told.append((done, of)))
    assert [number for number, _ in found.points] == [1, 2, 3]
    assert told[-1] == (measured_cores.ROUNDS, measured_cores.ROUNDS)
    assert found.others >= 0


def test_the_unit_is_one_alone_in_the_same_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is half as fast in every other round; one round is spoilt by others."""
    speeds = iter([10.0, 18.0, 5.0, 9.0, 10.0, 18.0, 5.0, 5.5, 10.0, 19.0])
    monkeypatch.setattr(measured_cores, "_speed", lambda team, window_s: next(speeds))
    assert measured_cores.measure(2, 0.01, lambda done, of: None).points == ((1, 1_000_000), (2, 1_800_000))


def test_a_process_that_ends_is_a_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "ends.py"
    program.write_text("raise SystemExit(3)")
    monkeypatch.setattr(busy_process, "__file__", str(program))
    assert main(["calibrate", "--home", str(tmp_path), "--time", "10ms"]) == 1
    assert "a process that measures has ended with 3" in capsys.readouterr().err


def test_a_busy_process_works_from_one_time_to_another() -> None:
    """Times that are over: it does one piece of work."""
    program = [sys.executable, "-I", "-S", busy_process.__file__]
    ended = subprocess.run(program, input="0 0\n0 1\n", text=True, capture_output=True, check=True, timeout=60)
    assert [float(line) > 0 for line in ended.stdout.split()] == [True, True]
    assert ended.stderr == ""


def test_other_programs_are_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = measured_cores.MeasuredCores(((1, 1_000_000), (2, 1_500_000)), 0.7)
    monkeypatch.setattr(measured_cores, "measure", lambda *_: found)
    assert main(["calibrate", "--home", str(tmp_path)]) == 0
    assert "other programs used 0.7 cores meanwhile: calibrate again" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "code", "message"), [("missing", 4, "there is no directory"), ("file", 4, "there is")]
)
def test_a_home_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, code: int, message: str
) -> None:
    assert main(["calibrate", "--home", str(tmp_path / name)]) == code
    assert message in capsys.readouterr().err
