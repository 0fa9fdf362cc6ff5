"""``carpool calibrate``: how fast the machine's cores are together, for simulations of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.options_common import TIME_US, answer, plural, with_common_options
from carpool.cli.render.columns import TableColumn
from carpool.cli.render.output import Output, stdout_output
from carpool.cli.render.progress import Progress
from carpool.core.units import SECOND_US
from carpool.protocol.display import escaped

#: Other programs that use a larger share of the machine's cores than this spoil the measurement.
DISTURBED = 0.05
_COLUMNS = (TableColumn("BUSY JOBS"), TableColumn("SPEED TOGETHER"), TableColumn("OF EACH"))


@click.command("calibrate", short_help="Measure this machine for `carpool simulate`.")
@click.option("--time", "time_us", type=TIME_US, default=10 * SECOND_US, help="How long to measure.  [default: 10s]")
@with_common_options
def command(home: Path, as_json: bool, time_us: int) -> int:
    """Measure how fast single-threaded busy processes are on this machine when 1, 2, 3 ... of them run at once.

    `carpool simulate --from-journal` then knows how jobs slow each other where they share the machine's cores: while
    they start up, load data, end, or compute on host devices.  The result stays in the daemon's directory.  Calibrate
    while the machine is idle.  Rates of copies are not measured here: a journal has those of the moves that jobs made.
    """
    # Only here: no other command, and no help text, should wait for the simulator to load.
    from carpool.cli.simulation.calibration import keep
    from carpool.cli.simulation.measured_cores import measure
    from carpool.telemetry.host import usable_cores

    _check_home(home)
    with Progress("measuring") as progress:
        found = measure(usable_cores(), time_us / SECOND_US, lambda done, of: progress.update("measuring", done, of))
    kept = keep(home, found)
    return answer(as_json, kept, lambda: _lines(kept, stdout_output()))


def _check_home(home: Path) -> None:
    """Check the directory before anything is measured.  Raises Problem."""
    if not home.is_dir():
        hint = "start the daemon once (`carpool up`), or name its directory: --home"
        raise Problem(Exit.NOT_FOUND, "no_home", f"there is no directory {home}", hint)
    if not os.access(home, os.W_OK):
        hint = "run this as root or as the user who runs the daemon"
        raise Problem(Exit.REFUSED, "not_yours", f"you may not write to {home}", hint)


def _lines(kept: Mapping[str, Any], output: Output) -> Iterator[str]:
    rows = [(str(jobs), f"{speed:.2f}", f"{speed / jobs:.2f}") for jobs, speed in kept["speeds"].items()]
    yield from output.table(_COLUMNS, rows)
    about = f"{plural(kept['cores'], 'core')} of {kept['machine']}; kept in {kept['file']}"
    yield from output.wrapped([escaped(about)])
    if kept["others"] > DISTURBED * kept["cores"]:
        text = f"other programs used {kept['others']:.1f} cores meanwhile: calibrate again when the machine is idle"
        yield from output.wrapped([text])
