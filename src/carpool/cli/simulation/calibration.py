"""Keep what has been measured of this machine in the home directory of its daemon."""

from __future__ import annotations

import datetime
import platform
from pathlib import Path
from typing import Any

import msgspec

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.options_common import whole_file
from carpool.cli.simulation.measured_cores import MeasuredCores
from carpool.protocol.paths import Home
from carpool.sim.calibration import Calibration, calibration

CPUINFO = Path("/proc/cpuinfo")


def keep(home: Path, found: MeasuredCores) -> dict[str, Any]:
    """Write the calibration; return its fields, the name of the file, and the cores that other programs used.

    Raises Problem.
    """
    now = datetime.datetime.now(datetime.UTC)
    measured = calibration(f"{now:%Y-%m-%dT%H:%M:%SZ}", _machine(), found.points)
    path = Home(home).calibration
    _write(path, measured)
    return {"file": str(path), "others": round(found.others, 3), **msgspec.structs.asdict(measured)}


def _write(path: Path, measured: Calibration) -> None:
    try:
        with whole_file(path) as file:
            file.write(msgspec.json.format(msgspec.json.encode(measured), indent=2) + b"\n")
    except OSError as error:
        raise Problem(Exit.FAILED, "cannot_write", f"{path} cannot be written: {error.strerror}") from error


def _machine() -> str:
    """Return the name of the processors."""
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
