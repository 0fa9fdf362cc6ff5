"""The file of `carpool calibrate`: read as it was written; what is damaged is said."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from carpool.protocol.paths import Home
from carpool.sim.calibration import FILE, BadCalibration, calibrated_cores, calibration
from carpool.sim.model.cores import Cores

POINTS = ((1, 1_000_000), (2, 1_812_345), (4, 2_000_001))
START = '{"measured": "2026-12-01T09:30:00Z", "machine": "x", '


def kept(home: Path, text: bytes | str) -> Path:
    Home(home).calibration.write_bytes(text if isinstance(text, bytes) else text.encode())
    return home


def test_what_was_measured_is_read_again(tmp_path: Path) -> None:
    measured = calibration("2026-12-01T09:30:00Z", "Xeon", POINTS)
    assert (measured.cores, measured.machine) == (4, "Xeon")
    assert calibrated_cores(kept(tmp_path, msgspec.json.encode(measured))) == Cores(POINTS, "2026-12-01")


def test_the_files_name_is_the_daemons() -> None:
    assert Path("home") / FILE == Home(Path("home")).calibration


def test_without_a_file_nothing_is_known(tmp_path: Path) -> None:
    assert calibrated_cores(tmp_path) is None
    assert calibrated_cores(tmp_path / "missing") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "truncated"),
        (b"\xff\xfe", "malformed"),
        ("[]", "Expected `object`"),
        (START + '"cores": 1}', "missing required field `speeds`"),
        (START + '"cores": 1, "speeds": {"1": 1}, "colour": 3}', "unknown field `colour`"),
        (START + '"cores": 1, "speeds": {"one": 1}}', "Expected `int`"),
        (START + '"cores": 1, "speeds": {}}', "the speed of one job alone must be 1"),
        (START + '"cores": 1, "speeds": {"1": 1, "2": 1e308}}', "infinity"),
        (START + '"cores": 2, "speeds": {"1": 1, "2": 2.5}}', "it must be at most 2"),
        (START + '"cores": 2, "speeds": {"1": 1}}', "the last speed is of 1 jobs, but there are 2 cores"),
    ],
)
def test_a_damaged_file_is_an_error_that_says_what_to_do(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(BadCalibration) as error:
        calibrated_cores(kept(tmp_path, text))
    assert str(error.value).startswith(str(tmp_path / "calibration.json"))
    assert message in str(error.value) and "run `carpool calibrate`" in str(error.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    Home(tmp_path).calibration.mkdir()
    with pytest.raises(BadCalibration, match="cannot be read: Is a directory"):
        calibrated_cores(tmp_path)
