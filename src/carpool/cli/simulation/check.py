"""Check the simulator (`--check`): simulate the jobs of a journal as they really ran, and compare their times.

The daemon does so once a day, by this command.  A check of its own journal is kept beside it.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.options_common import answer, plural, whole_file
from carpool.cli.render import formatting
from carpool.cli.simulation import choices, machine, source
from carpool.cli.simulation.options import Wanted
from carpool.protocol.display import escaped
from carpool.protocol.paths import Home, owner_of
from carpool.protocol.predictions import (
    FEWEST_JOBS,
    DamagedChecks,
    PredictionCheck,
    check_words,
    checks_text,
    percent,
    read_checks,
    with_check,
)
from carpool.protocol.units import format_duration

if TYPE_CHECKING:
    from carpool.sim.model.options import Options
    from carpool.sim.model.result import JobResult
    from carpool.sim.results.comparison import ComparedJob, Comparison
    from carpool.sim.traces.journal_past import RecordedPast

DAY_US = 86_400_000_000
#: Parameters of the command that go with --check: the journal says the rest.
ALLOWED = frozenset({"check", "journal", "since_us", "home", "as_json"})
WORST = 3
MILLION = 1_000_000
READABLE = 0o644


def refuse_other_options(context: click.Context) -> None:
    """Raise UsageError for an option that says what the journal says itself."""
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
        if given and name not in ALLOWED:
            text = f"--check simulates what the journal says; leave {parameter.opts[-1]} out."
            raise click.UsageError(text, context)


def check(wanted: Wanted, home: Path, as_json: bool) -> int:
    """Simulate, compare, print, and keep the figures.  Raises Problem."""
    since = formatting.now_us() - DAY_US if wanted.since_us is None else wanted.since_us
    wanted = dataclasses.replace(wanted, journal=wanted.journal or "")
    past = _past(source.journal_path(wanted, home), since)
    comparison = _comparison(wanted, home, past)
    if not comparison.jobs:
        why = _left_out(past) or "wait until one has ended, or choose an earlier --since"
        raise Problem(Exit.FAILED, "no_jobs", "there is no job to compare", why)
    found = _figures(comparison, past, since)
    code = answer(as_json, _for_json(found, comparison, past), lambda: _lines(found, comparison, past))
    _keep(wanted, home, found)
    return code


def _past(journal: Path, since_us: int) -> RecordedPast:
    from carpool.sim.traces import TraceError
    from carpool.sim.traces.journal_past import read_past

    try:
        return read_past(journal, since_us)
    except TraceError as error:
        raise Problem(Exit.FAILED, "trace", str(error)) from error


def _comparison(wanted: Wanted, home: Path, past: RecordedPast) -> Comparison:
    from carpool.sim.results.comparison import compare

    return compare(_simulated(wanted, home, past) if past.real_us else (), past.real_us)


def _simulated(wanted: Wanted, home: Path, past: RecordedPast) -> Sequence[JobResult]:
    """Simulate all jobs of the time under what the daemon ran with.  Raises Problem."""
    from carpool.sim.model.options import suggested_resolution_us
    from carpool.sim.study.job_sources import jobs_of
    from carpool.sim.study.simulations import Combination, Study

    asked = _as_recorded(wanted, past)
    fields = machine.machine_fields(asked, home)
    (chosen,) = choices.all_options(asked, source.read_served(asked, home), fields)
    options = _with_settings(chosen, past)
    jobs = source.read_jobs(asked, home)
    resolution = suggested_resolution_us(jobs_of(jobs, None, None), options.settings)
    options = dataclasses.replace(options, resolution_us=resolution)
    policy = options.settings.policy
    run = Study(jobs, {policy: options}, keep=True).run(Combination(policy, None, None))
    if run.result is None:
        raise Problem(Exit.FAILED, "simulation", run.error)
    return run.result.jobs


def _as_recorded(wanted: Wanted, past: RecordedPast) -> Wanted:
    """Return the options that stand for the recorded policies and devices, which all count as the smallest."""
    from carpool.core.model import Sharing

    devices, settings = past.set_up.devices, past.set_up.settings
    return dataclasses.replace(
        wanted,
        since_us=past.begin_us,
        policies=(settings.policy,),
        placement=settings.placement,
        devices=len(devices),
        device_memory=min(device.capacity - device.reserve for device in devices),
        oversubscribe=devices[0].oversubscribe.value,
        slowdown="timeslice" if devices[0].sharing is Sharing.TIMESLICE else wanted.slowdown,
        quiet=True,
    )


def _with_settings(options: Options, past: RecordedPast) -> Options:
    """Put all recorded settings into the simulator's options, with the devices' own time quantum, if any."""
    from carpool.sim.model.options import suggested_telemetry_us

    settings, quantum = past.set_up.settings, past.set_up.devices[0].quantum_us
    if quantum is not None:
        settings = dataclasses.replace(settings, quantum_us=quantum)
    telemetry = suggested_telemetry_us(settings, options.devices)
    return dataclasses.replace(options, settings=settings, telemetry_us=telemetry)


def _figures(comparison: Comparison, past: RecordedPast, since_us: int) -> PredictionCheck:
    from carpool import __version__

    settings, count = past.set_up.settings, len(comparison.jobs)
    return PredictionCheck(
        since_us=since_us,
        until_us=formatting.now_us(),
        carpool=__version__,
        policy=settings.policy,
        placement=settings.placement,
        devices=len(past.set_up.devices),
        jobs=count,
        left_out=sum(past.left_out.values()) + len(past.real_us) - count,
        predicted_mean_s=comparison.predicted_mean_s,
        real_mean_s=comparison.real_mean_s,
        mean_error=comparison.mean_error,
        median_error=comparison.error(50),
        p95_error=comparison.error(95),
    )


def _for_json(found: PredictionCheck, comparison: Comparison, past: RecordedPast) -> dict[str, Any]:
    worst = [
        {"job": job.id, "predicted_s": job.predicted_us / MILLION, "real_s": job.real_us / MILLION}
        for job in comparison.worst(WORST)
    ]
    fields = msgspec.structs.asdict(found)
    return {**fields, "left_out": dict(past.left_out), "refused": len(past.real_us) - found.jobs, "worst": worst}


def _lines(found: PredictionCheck, comparison: Comparison, past: RecordedPast) -> Iterator[str]:
    yield check_words(found)
    means = (found.predicted_mean_s, found.real_mean_s)
    yield "mean completion time: predicted {}, really {}".format(*(format_duration(round(s * MILLION)) for s in means))
    yield "the jobs that were predicted worst:"
    yield from map(_job_line, comparison.worst(WORST))
    yield f"as under policy {found.policy}, placement {found.placement}, on {plural(found.devices, 'device')}"
    yield from _notes(found, past)


def _job_line(job: ComparedJob) -> str:
    times = f"predicted {format_duration(job.predicted_us)}, really {format_duration(job.real_us)}"
    return f"  job {job.id}{f' ({escaped(job.name)})' if job.name else ''}: {times}"


def _notes(found: PredictionCheck, past: RecordedPast) -> Iterator[str]:
    if past.share_ppm < MILLION:
        share = percent(past.share_ppm / MILLION)
        yield f"settings or devices changed meanwhile: these held for {share} of the time, and are taken for all of it"
    if left_out := _left_out(past):
        yield left_out
    if refused := len(past.real_us) - found.jobs:
        yield f"the simulator refused {plural(refused, 'job')}, which really ran"
    if found.jobs < FEWEST_JOBS:
        yield f"so few jobs say little, and the check is not kept: {FEWEST_JOBS} are needed"


def _left_out(past: RecordedPast) -> str:
    """Return which jobs are not compared; empty if all are."""
    counts = ", ".join(f"{count:,} that {why}" for why, count in past.left_out.items())
    return f"not compared: {counts}" if counts else ""


def _keep(wanted: Wanted, home: Path, found: PredictionCheck) -> None:
    """Add the figures to the daemon's file, if they are about its journal and this user is its owner.

    Raises Problem, also for a damaged file, which stays as it is.
    """
    path, journal = Home(home).predictions, Home(home).journal
    if wanted.journal or found.jobs < FEWEST_JOBS:
        return
    if os.geteuid() not in (0, owner_of(journal)):
        print("the check is not kept: only the daemon's own user keeps checks", file=sys.stderr)
        return
    try:
        kept = with_check(read_checks(path), found)
        with whole_file(path) as file:
            os.fchmod(file.fileno(), READABLE)
            file.write(checks_text(kept))
    except DamagedChecks as error:
        raise Problem(Exit.FAILED, "predictions", f"the check is not kept: {error}") from error
    except OSError as error:
        raise Problem(Exit.FAILED, "cannot_write", f"{path} cannot be written: {error.strerror}") from error
