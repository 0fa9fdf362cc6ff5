"""What `carpool calibrate` has measured of a machine: a file in the home directory of the machine's daemon."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from carpool.sim.model.cores import Cores, Point, check_cores
from carpool.sim.model.trace_job import WHOLE_PPM

FILE = "calibration.json"  # in the daemon's home directory


class BadCalibration(ValueError):
    """Raised for a file that cannot be read; the message says why, and what to do."""


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``speeds``: what so many single-threaded busy processes get done together, in units of one alone."""

    measured: str  # when: date and time in UTC, as in 2026-12-01T09:30:00Z
    machine: str  # the name of its processors
    cores: int
    speeds: dict[int, float]

    @property
    def curve(self) -> Cores:
        """The curve for the simulator.  Raises ValueError, for people."""
        points = tuple((count, round(speed * WHOLE_PPM)) for count, speed in sorted(self.speeds.items()))
        cores = Cores(points, self.measured.partition("T")[0])
        check_cores(cores)
        if cores.count != self.cores:
            raise ValueError(f"the last speed is of {cores.count} jobs, but there are {self.cores} cores")
        return cores


def calibration(measured: str, machine: str, points: Sequence[Point]) -> Calibration:
    """Return the calibration of a machine with as many cores as the last point says."""
    speeds = {count: speed / WHOLE_PPM for count, speed in points}
    return Calibration(measured, machine, points[-1][0], speeds)


def calibrated_cores(home: Path) -> Cores | None:
    """Return the curve of the machine whose daemon has this home; None: none has been measured.

    Raises BadCalibration.
    """
    path = home / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Calibration).curve
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadCalibration(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, OverflowError) as error:
        hint = "run `carpool calibrate` to measure anew"
        raise BadCalibration(f"{path} is not what `carpool calibrate` writes: {error}; {hint}") from None
