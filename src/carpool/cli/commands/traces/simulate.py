"""``carpool simulate``: a trace in virtual time, under one policy or several."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import click

from carpool.cli.base.cli_error import Exit
from carpool.cli.base.options_common import (
    OUTPUT_FILE,
    OVERSUBSCRIBE,
    POSITIVE,
    SIZE,
    TIME_US,
    Parsed,
    answer,
    with_common_options,
)
from carpool.cli.base.presets import PRESETS, preset
from carpool.cli.base.time_arguments import MOMENT
from carpool.cli.render.output import stdout_output
from carpool.cli.simulation.machine import with_machine_options
from carpool.cli.simulation.options import Wanted, estimator, las_limits
from carpool.cli.simulation.study_options import HostsOf, with_study_options
from carpool.core.model import GIB
from carpool.protocol.setting_text import parse_setting, share_ppm

FORMATS = ("auto", "csv", "philly", "alibaba")


@click.command("simulate", short_help="What-if simulation of a trace.")
@click.argument("trace", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--format", "trace_format", type=click.Choice(FORMATS), help="Format of the TRACE file.  [default: auto]")
@click.option(
    "--generate", "generator", metavar="KIND[:KEY=VALUE,...]", help="Generate jobs, as in poisson:jobs=1000,load=0.9."
)
@click.option(
    "--from-journal",
    "journal",
    metavar="[PATH]",
    is_flag=False,
    flag_value="",
    help="Jobs that a daemon has run; PATH is its journal or its directory.  [default: that of --home]",
)
@click.option(
    "--since",
    "since_us",
    type=MOMENT,
    help="With --from-journal: only jobs submitted since then, as in 24h.  [default: 24h with --check, else all]",
)
@click.option("--verify", is_flag=True, help="With --from-journal: only replay it, and compare every decision.")
@click.option(
    "--check",
    is_flag=True,
    help="Simulate the jobs of a journal as they really ran, and compare their completion times with the real ones.",
)
@click.option(
    "--services",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file of models and engines that are served beside the jobs, or without jobs; needs lanes.",
)
@with_study_options
@click.option("--limit", type=POSITIVE, help="Only the first N jobs.")
@click.option("--save-trace", type=OUTPUT_FILE, help="Write the jobs as a trace in CSV.")
@click.option("--devices", type=POSITIVE, help="Number of identical devices.  [default: 1]")
@click.option(
    "--policy",
    "policies",
    metavar="NAME",
    multiple=True,
    help="fifo, sjf, srtf, srsf, las, fair, pack, tq, ./mine.py:Class; repeatable.  [default: the preset's, or fair]",
)
@click.option("--lanes", is_flag=True, help="Jobs share devices in lanes, with memory, under all policies.")
@click.option(
    "--backfill/--no-backfill",
    default=None,
    help="Whether jobs that fit may start before an earlier job that does not.",
)
@click.option(
    "--las-limits",
    "las_limits_us",
    type=Parsed("time,...", las_limits),
    help="LAS queue thresholds, in seconds.  [default: 3250,7200]",
)
@click.option("--las-unit", type=click.Choice(("time", "gpu")), help="What LAS counts: time, or time × devices.")
@click.option("--quantum", "quantum_us", type=TIME_US, help="Shortest turn in a lane.  [default: the policy's]")
@click.option(
    "--set",
    "settings",
    multiple=True,
    type=Parsed("name=value", parse_setting),
    help="Change a setting of the core or of the policy, as in grace_us=5ms; repeatable.",
)
@click.option(
    "--device-memory", type=SIZE, default=16 * GIB, show_default="16GiB", help="Memory of each device; for lanes."
)
@click.option(
    "--oversubscribe",
    type=OVERSUBSCRIBE,
    help="Whether memory that does not fit moves to host memory; for lanes.  [default: auto]",
)
@click.option("--store", type=SIZE, help="Host memory for memory that is moved out.  [default: unlimited]")
@click.option(
    "--copy-rate",
    type=SIZE,
    help="Bytes per second between device and host; 0: instantaneous.  [default: as in the journal, else 6GB]",
)
@click.option(
    "--slowdown",
    metavar="NAME",
    default="concurrent",
    show_default=True,
    help="How jobs that compute at the same time slow each other: concurrent, timeslice, or ./mine.py:Class.",
)
@click.option(
    "--interference",
    "interference_ppm",
    type=Parsed("share", share_ppm),
    default=0,
    help="Share of speed that every job loses for each further job that computes at the same time.  [default: 0]",
)
@click.option(
    "--preset",
    type=Parsed("name", preset),
    help="Policy and settings of a published system, as in `carpool up`; turns --lanes on.",
)
@click.option("--placement", metavar="NAME", help="Which device a job is placed on; for lanes.  [default: magm]")
@click.option(
    "--estimator",
    type=Parsed("name", estimator),
    help="Memory estimates of jobs: none, oracle (the truth), or column:NAME for the trace's estimate_NAME_mib."
    "  [default: oracle]",
)
@click.option(
    "--telemetry",
    "telemetry_us",
    type=TIME_US,
    help="Time between measurements of devices; 0: none.  [default: 1s, where decisions depend on them]",
)
@click.option(
    "--memory-warmup",
    "warmup_us",
    type=TIME_US,
    default=0,
    help="Time after which jobs need all of their memory.  [default: 0]",
)
@click.option(
    "--memory-at-first",
    "warmup_share_ppm",
    type=Parsed("share", share_ppm),
    default=500_000,
    show_default="0.5",
    help="Share of its memory that a job needs before that time.",
)
@click.option(
    "--resolution",
    "resolution_us",
    type=TIME_US,
    help="Shortest turn that is modelled; 0: every turn.  [default: chosen to keep the simulation short]",
)
@click.option(
    "--switch-cost",
    "switch_cost_us",
    type=TIME_US,
    help="Time lost after each preemption.  [default: as the journal or the trace says, else 0]",
)
@with_machine_options
@click.option("--retries", type=click.IntRange(min=0), default=0, help="Retries of a job that fails.  [default: 0]")
@click.option(
    "--undeclared",
    multiple=True,
    type=click.Choice(("duration", "memory")),
    help="Hide this from the policy; repeatable.",
)
@click.option("--jobs-csv", type=OUTPUT_FILE, help="Write a CSV file with one line per job; one file per policy.")
@click.option(
    "--runs-csv", type=OUTPUT_FILE, help="Write a CSV file with one line per run in a lane; one file per policy."
)
@click.option("--report", type=OUTPUT_FILE, help="Write an HTML page of charts; needs the extra report.")
@with_common_options
@click.pass_context
def command(
    context: click.Context, /, home: Path, as_json: bool, devices: int | None, hosts: HostsOf | None, **options: Any
) -> int:
    """What-if simulation of a trace: the scheduler that runs live, in virtual time.

    Prints one row per policy: completion times (JCT), queueing delay, makespan.  TRACE is CSV, or a trace of Philly or
    Alibaba.  Jobs get whole devices.  They share devices under all policies with --lanes, --from-journal, --preset or
    --placement, or if one of the policies is fair, pack or tq.  Several seeds, loads or replicas give each figure a
    range: the 5th to the 95th percentile.  Examples:

    \b
        carpool simulate trace.csv --devices 8 --policy fifo --policy srtf
        carpool simulate --generate salus:jobs=100 --policy fair --report out.html
        carpool simulate --generate poisson --seed 0:20 --load 0.5:1.0:0.1 -j
        carpool simulate --check
    """
    # Only here: no other command, and no help text, should wait for the simulator to load.
    from carpool.cli.simulation import check, choices, machine, outputs, run, source, table, verify

    if devices is not None and hosts is not None:
        raise click.UsageError("--devices and --hosts both say how many devices there are; give one of them.")
    wanted = Wanted(
        devices=hosts.hosts * hosts.devices if hosts else devices or 1,
        devices_per_host=hosts.devices if hosts else None,
        quiet=as_json or not sys.stdout.isatty(),
        arguments=tuple(context.find_root().obj or ()),
        **options,
    )
    if wanted.check:
        check.refuse_other_options(context)
        return check.check(wanted, home, as_json)
    if not wanted.policies:
        wanted = dataclasses.replace(wanted, policies=(PRESETS[wanted.preset].policy if wanted.preset else "fair",))
    source.check_source(wanted)
    if wanted.verify:
        return verify.verify(source.journal_path(wanted, home), as_json, wanted.quiet)
    fields = machine.machine_fields(wanted, home)
    chosen = choices.all_options(wanted, source.read_served(wanted, home), fields)
    outputs.check_outputs(wanted)
    found = run.run_all(wanted, source.read_jobs(wanted, home), chosen, home)
    if found.rows_with_figures:
        answer(as_json, found.for_json(), lambda: table.lines(found.rows_with_figures, stdout_output()))
    found.check()
    return Exit.OK
