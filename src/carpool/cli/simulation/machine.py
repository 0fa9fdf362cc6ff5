"""The machine of a simulation: its cores, which of the jobs compute on them, and the rates that a journal has measured.

`carpool calibrate` has measured the cores of a daemon's machine; its figures are beside the journal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.options_common import Parsed, plural
from carpool.cli.simulation.choices import MICROS, in_lanes
from carpool.cli.simulation.options import Wanted
from carpool.cli.simulation.source import journal_path
from carpool.protocol.units import format_size

if TYPE_CHECKING:
    from carpool.sim.model.cores import Cores
    from carpool.sim.traces.journal_machine import JournalMachine

CALIBRATED, NONE = "calibrated", "none"
SLOWDOWN = "concurrent"  # the default of --slowdown
ASSUMED = "taken as the journal's, none slowed by another; to measure them: `carpool calibrate` (or --cores)"


def _cores(text: str) -> Cores | str:
    """Parse the value of --cores.  Raises ValueError, for people."""
    from carpool.sim.model.cores import parse_cores

    return text if text in (CALIBRATED, NONE) else parse_cores(text)


def with_machine_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options ``cores`` and ``host_devices``."""
    function = click.option(
        "--host-devices", is_flag=True, help="With --cores: all jobs compute on host devices, each with one core."
    )(function)
    return click.option(
        "--cores",
        type=Parsed("cores", _cores),
        metavar="C[:S2,S3,...]",
        help="Cores of the machine, alone or with what 2, 3 ... busy jobs get done on them, as in 2:1.8; calibrated: as"
        " `carpool calibrate` has measured; or none.  [default: with --from-journal as calibrated, or those of this"
        " machine; else none]",
    )(function)


def machine_fields(wanted: Wanted, home: Path) -> dict[str, Any]:
    """Return the fields of the simulator's options that tell of the machine.  Raises Problem, UsageError."""
    recorded = _recorded(wanted, home)
    cores = _chosen_cores(wanted, home)
    if cores is not None:
        _check_slowdown(wanted, wanted.host_devices or (bool(recorded.on_cores) and not recorded.on_gpus))
    for note in _notes(wanted, recorded):
        print(note, file=sys.stderr)
    rates = {"offload_bytes_per_us": recorded.offload, "restore_bytes_per_us": recorded.restore}
    known = {name: rate for name, rate in rates.items() if rate and wanted.copy_rate is None}
    here = {"host_devices": wanted.host_devices, "devices_per_host": wanted.devices_per_host}
    return {"cores": cores, **here, **known}


def _recorded(wanted: Wanted, home: Path) -> JournalMachine:
    from carpool.sim.traces import TraceError, read_machine
    from carpool.sim.traces.journal_machine import JournalMachine

    if wanted.journal is None:
        return JournalMachine()
    try:
        return read_machine(journal_path(wanted, home), wanted.since_us or 0)
    except TraceError as error:
        raise Problem(Exit.FAILED, "trace", str(error)) from error


def _notes(wanted: Wanted, recorded: JournalMachine) -> Iterator[str]:
    """Yield what is taken from the journal, where no option says otherwise."""
    from carpool.sim.model.options import COPY_BYTES_PER_US

    if wanted.copy_rate is None and (recorded.offload or recorded.restore):
        out, back = (format_size((rate or COPY_BYTES_PER_US) * MICROS) for rate in (recorded.offload, recorded.restore))
        yield f"memory moves at {out}/s out and {back}/s back, as it did (--copy-rate)"
    if wanted.switch_cost_us is None and recorded.switch_us:
        yield f"a switch costs {recorded.usual_switch_us / 1000:g} ms, the median of the journal (--switch-cost)"


def _chosen_cores(wanted: Wanted, home: Path) -> Cores | None:
    given = wanted.cores
    if given == NONE or (given is None and wanted.journal is None):
        found = None
    elif given is None or isinstance(given, str):
        found = _calibrated(wanted, home)
    else:
        found = given
    if found is not None and not in_lanes(wanted):
        raise click.UsageError("--cores: jobs share the cores of a machine in lanes only; add --lanes.")
    if wanted.host_devices and found is None:
        raise click.UsageError("--host-devices: no cores are modelled; give --cores, or run `carpool calibrate`.")
    return found


def _calibrated(wanted: Wanted, home: Path) -> Cores | None:
    """Return the cores that have been measured; they may be missing unless --cores names them."""
    from carpool.sim.calibration import BadCalibration, calibrated_cores

    journal = journal_path(wanted, home)
    directory = journal if journal.is_dir() else journal.parent
    try:
        found = calibrated_cores(directory)
    except BadCalibration as error:
        raise Problem(Exit.FAILED, "calibration", str(error), "or choose the cores: --cores") from error
    if found is None and wanted.cores is not None:
        raise Problem(Exit.NOT_FOUND, "calibration", f"{directory} has no calibration", "run `carpool calibrate`")
    return found or _assumed(wanted)


def _assumed(wanted: Wanted) -> Cores | None:
    """Return the cores of this machine; None: an option says already what slows jobs."""
    from carpool.sim.model.cores import parse_cores
    from carpool.telemetry.host import usable_cores

    if _slowdown_given(wanted):
        return None
    count = usable_cores()
    print(f"host: {plural(count, 'core')} of this machine, {ASSUMED}", file=sys.stderr)
    return parse_cores(str(count))


def _check_slowdown(wanted: Wanted, on_cores: bool) -> None:
    """Check that jobs that all compute on cores have no second model of what slows them.  Raises UsageError."""
    if on_cores and _slowdown_given(wanted):
        text = "jobs on host devices are slowed by the cores of the machine; leave --slowdown and --interference out"
        raise click.UsageError(f"{text}, or add --cores none.")


def _slowdown_given(wanted: Wanted) -> bool:
    return wanted.slowdown != SLOWDOWN or wanted.interference_ppm != 0
