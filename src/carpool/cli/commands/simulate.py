"""``carpool simulate``: a trace in virtual time, under one policy or several."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from carpool.cli.base.options_common import (
    OVERSUBSCRIBE,
    POSITIVE,
    SIZE,
    TIME_US,
    Parsed,
    print_json,
    print_lines,
    with_common_options,
)
from carpool.cli.base.presets import PRESETS, preset
from carpool.cli.base.settings_text import setting, share_ppm
from carpool.cli.render.style import stdout_style
from carpool.cli.render.table import terminal_width
from carpool.cli.simulation.options import Wanted, estimator, las_limits
from carpool.core.model import GIB

FORMATS = ("auto", "csv", "philly", "alibaba")
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("simulate", short_help="Simulate a trace: what if the policy or the devices were others?")
@click.argument("trace", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--format", "trace_format", type=click.Choice(FORMATS), help="Of the TRACE file.  [default: auto]")
@click.option(
    "--generate", "generator", metavar="KIND[:KEY=VALUE,...]", help="Made-up jobs, as poisson:jobs=1000,load=0.9."
)
@click.option("--seed", type=click.IntRange(min=0), help="Of --generate: the same seed, the same jobs.  [default: 0]")
@click.option(
    "--from-journal",
    "journal",
    metavar="[PATH]",
    is_flag=False,
    flag_value="",
    help="What a daemon has run: its journal, or its directory.  [default: that of --home]",
)
@click.option("--verify", is_flag=True, help="Of --from-journal: only replay it, and compare all decisions.")
@click.option(
    "--services",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Models that are served beside the jobs, or without any: TOML; for lanes.",
)
@click.option("--limit", type=POSITIVE, help="Only the first N jobs.")
@click.option("--save-trace", type=_FILE, help="Write the jobs as a trace in CSV.")
@click.option("--devices", type=POSITIVE, default=1, show_default=True, help="How many, all alike.")
@click.option(
    "--policy",
    "policies",
    metavar="NAME",
    multiple=True,
    help="fifo, sjf, srtf, srsf, las, fair, pack, tq, ./mine.py:Class; repeatable.  [default: the preset's, or fair]",
)
@click.option("--lanes", is_flag=True, help="Jobs share devices, with memory; fair, pack and tq always do.")
@click.option("--backfill/--no-backfill", default=None, help="Jobs that fit pass one that does not.")
@click.option(
    "--las-limits",
    "las_limits_us",
    type=Parsed("time,...", las_limits),
    help="Of the queues of las.  [default: 3250,7200]",
)
@click.option("--las-unit", type=click.Choice(("time", "gpu")), help="las counts time, or time × devices.")
@click.option("--quantum", "quantum_us", type=TIME_US, help="Shortest turn in a lane.  [default: the policy's]")
@click.option(
    "--set",
    "settings",
    multiple=True,
    type=Parsed("name=value", setting),
    help="A setting of the core or of the policy, as grace_us=5ms; repeatable.",
)
@click.option("--device-memory", type=SIZE, default=16 * GIB, show_default="16GiB", help="Of each device; for lanes.")
@click.option(
    "--oversubscribe",
    type=OVERSUBSCRIBE,
    help="Memory of lanes moves to host memory, and back.  [default: auto]",
)
@click.option("--store", type=SIZE, help="Host memory for what is moved out.  [default: no bound]")
@click.option("--copy-rate", type=SIZE, help="Bytes per second between device and host.  [default: 6GB; 0: in no time]")
@click.option(
    "--sharing",
    metavar="NAME",
    default="concurrent",
    show_default=True,
    help="How lanes slow each other: concurrent, timeslice, or ./mine.py:Class.",
)
@click.option(
    "--interference",
    "interference_ppm",
    type=Parsed("share", share_ppm),
    default=0,
    help="What each further job that computes at once costs all of them.  [default: 0]",
)
@click.option("--preset", type=Parsed("name", preset), help="As `carpool up`: a system's policy and settings; lanes.")
@click.option("--placement", metavar="NAME", help="Which device a job is placed on; for lanes.  [default: magm]")
@click.option(
    "--estimator",
    type=Parsed("name", estimator),
    help="What is told of memory: none, oracle, or column:NAME for estimate_NAME_mib.  [default: oracle]",
)
@click.option(
    "--telemetry",
    "telemetry_us",
    type=TIME_US,
    help="How often devices are measured; 0: never.  [default: 1s, where it decides]",
)
@click.option(
    "--memory-warmup", "warmup_us", type=TIME_US, default=0, help="Jobs need all of their memory so late.  [default: 0]"
)
@click.option(
    "--memory-at-first",
    "warmup_share_ppm",
    type=Parsed("share", share_ppm),
    default=500_000,
    show_default="0.5",
    help="Until then they need this share of it.",
)
@click.option("--resolution", "resolution_us", type=TIME_US, help="Shortest turn modelled; 0: all.  [default: chosen]")
@click.option("--switch-cost", "switch_cost_us", type=TIME_US, default=0, help="Lost after each preemption.")
@click.option("--retries", type=click.IntRange(min=0), default=0, help="How often a job that fails is tried again.")
@click.option(
    "--undeclared",
    multiple=True,
    type=click.Choice(("duration", "memory")),
    help="What the policy is not told; repeatable.",
)
@click.option("--jobs-csv", type=_FILE, help="Write one line per job; a file per policy if there are several.")
@click.option("--report", type=_FILE, help="Write a page of charts, in HTML.")
@with_common_options
def command(home: Path, as_json: bool, **options: Any) -> int:
    """Simulate a trace with the code that runs live, in virtual time.

    Each policy brings one row: completion times (JCT), queueing delay, makespan.  TRACE is CSV, or a trace of Philly or
    Alibaba.  Without --lanes, jobs get whole devices; under fair, pack and tq they share them.  Examples:

    \b
        carpool simulate trace.csv --devices 8 --policy fifo --policy srtf
        carpool simulate --generate salus:jobs=100 --policy fair --report out.html
    """
    # Only here: no other command, and no help text, should wait for the simulator to load.
    from carpool.cli.simulation import choices, outputs, run, source, table, verify

    wanted = Wanted(**options)
    if not wanted.policies:
        wanted = dataclasses.replace(wanted, policies=(PRESETS[wanted.preset].policy if wanted.preset else "fair",))
    source.check_source(wanted)
    if wanted.verify:
        return verify.verify(source.journal_path(wanted, home), as_json)
    chosen = choices.all_options(wanted, source.read_served(wanted))
    outputs.check_outputs(wanted)
    jobs = source.read_jobs(wanted, home)
    choices.check_estimator(wanted, jobs)
    if wanted.save_trace is not None:
        source.save_jobs(jobs, wanted.save_trace)
    summaries = run.run_all(wanted, jobs, chosen)
    if as_json:
        print_json(summaries if len(summaries) > 1 else summaries[0])
    else:
        print_lines(table.lines(summaries, stdout_style(), terminal_width()))
    return 0
