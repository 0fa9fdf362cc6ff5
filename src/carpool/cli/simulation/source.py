"""The source of the jobs: a trace file, a generator, or a daemon's journal; and replicas of them."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.options_common import plural
from carpool.cli.render.progress import Progress
from carpool.cli.simulation.options import Wanted
from carpool.cli.simulation.outputs import writing
from carpool.protocol.paths import expanded

if TYPE_CHECKING:
    from carpool.sim.model.served_engines import ServedEngine
    from carpool.sim.model.served_models import Services
    from carpool.sim.model.trace_job import TraceJob
    from carpool.sim.results.provenance import MadeWith
    from carpool.sim.study.job_sources import JobSource

_REQUESTS = "each time with requests counts as one, which computes for as long as it did; a journal has no tokens"


def check_source(wanted: Wanted) -> None:
    """Raise UsageError unless exactly one source of jobs is named, or services alone, with options that it has."""
    sources = (wanted.trace, wanted.generator, wanted.journal)
    named = sum(source is not None for source in sources)
    if named != 1 and not (named == 0 and wanted.services is not None):
        raise click.UsageError("Give one source of jobs: a TRACE file, --generate KIND, or --from-journal.")
    journal, replicas = wanted.journal is not None, wanted.replicas is not None
    for given, needed, text in (
        (wanted.seeds is not None, wanted.generator is not None, "--seed is for --generate."),
        (wanted.trace_format is not None, wanted.trace is not None, "--format is for a TRACE file."),
        (wanted.since_us is not None, journal and not wanted.verify, "--since is for --from-journal without --verify."),
        (wanted.verify, journal, "--verify is for --from-journal."),
        (wanted.loads is not None, named == 1, "--load is for jobs; services have rates."),
        (replicas, named == 1, "--replicas is for jobs; services have a seed."),
        (wanted.spread is not None, replicas, "--spread is for --replicas."),
        (
            replicas,
            journal or wanted.spread is not None,
            "--replicas needs --spread, as in 10%; a journal shows its own.",
        ),
        (replicas, len(wanted.all_seeds) == 1, "--seed FROM:TO and --replicas both repeat; give one of them."),
    ):
        if given and not needed:
            raise click.UsageError(text)


def journal_path(wanted: Wanted, home: Path) -> Path:
    """Return the path of the named journal, or the directory that has a journal."""
    return expanded(wanted.journal) if wanted.journal else home


def read_jobs(wanted: Wanted, home: Path) -> JobSource:
    """Return the jobs in order of submission; notes about jobs that were left out go to standard error.

    They are made, or read, once here: a generator is asked again for each seed and load.  Raises UsageError, Problem.
    """
    from carpool.sim.study.job_sources import Generated, Recorded, jobs_of

    notes: list[str] = []
    with Progress("reading the jobs", not wanted.quiet):
        if wanted.generator is not None:
            source: JobSource = Generated(wanted.generator, wanted.devices, wanted.limit)
        else:
            jobs, notes = _read(wanted, home)
            source = Recorded(sorted(jobs, key=lambda job: job.submit_us)[: wanted.limit])
        try:
            jobs_of(source, wanted.all_loads[0], wanted.all_seeds[0])
        except ValueError as error:
            raise click.UsageError(f"--generate: {error}") from error
    for note in notes:
        print(note, file=sys.stderr)
    return source


def read_served(wanted: Wanted, home: Path) -> Services | None:
    """Return the services beside the jobs, with the engines of a journal, or None.  Raises Problem."""
    from carpool.sim.model.served_models import Services
    from carpool.sim.services.toml_file import read_services
    from carpool.sim.traces import TraceError

    try:
        named = None if wanted.services is None else read_services(wanted.services)
        recorded = _engines(wanted, home)
    except TraceError as error:
        raise Problem(Exit.FAILED, "services", str(error)) from error
    if not recorded:
        return named
    found = named or Services(())
    return dataclasses.replace(found, engines=(*found.engines, *recorded))


def _engines(wanted: Wanted, home: Path) -> Sequence[ServedEngine]:
    """Return the engines of a journal, with a note about them on standard error."""
    from carpool.sim.traces import read_engines

    if wanted.journal is None:
        return ()
    found = read_engines(journal_path(wanted, home), wanted.since_us or 0)
    if found:
        print(f"{plural(len(found), 'run')} of engines: {_REQUESTS}", file=sys.stderr)
    return found


def _read(wanted: Wanted, home: Path) -> tuple[list[TraceJob], list[str]]:
    from carpool.sim.traces import TraceError, read_journal, read_trace_with_notes

    if wanted.trace is None and wanted.journal is None:
        return [], []  # services alone
    try:
        if wanted.trace is not None:
            return read_trace_with_notes(wanted.trace, wanted.trace_format or "auto")
        return read_journal(journal_path(wanted, home), wanted.since_us or 0)
    except TraceError as error:
        raise Problem(Exit.FAILED, "trace", str(error)) from error


def save_jobs(jobs: Sequence[TraceJob], path: Path) -> None:
    """Write jobs as a trace that `read_jobs` understands.  Raises Problem."""
    from carpool.sim.traces import write_trace

    try:
        with writing(path) as draft:
            write_trace(jobs, draft)
    except ValueError as error:
        raise Problem(Exit.FAILED, "trace", f"--save-trace: {error}") from error


def made_with(wanted: Wanted, home: Path, jobs: Sequence[TraceJob]) -> MadeWith:
    """Return what the results are made with; ``jobs``: as they were read from a journal."""
    from carpool import __version__
    from carpool.sim.results.provenance import MadeWith, source_file, source_journal

    seeds = wanted.seeds or range(1)
    return MadeWith(
        carpool=__version__,
        command=shlex.join(("carpool", *wanted.arguments)),
        trace=None if wanted.trace is None else source_file(wanted.trace),
        journal=None if wanted.journal is None else source_journal(journal_path(wanted, home), jobs),
        generator=wanted.generator,
        services=None if wanted.services is None else source_file(wanted.services),
        seeds=None if wanted.generator is None else f"{seeds[0]}:{seeds[-1] + 1}" if len(seeds) > 1 else str(seeds[0]),
        loads=wanted.loads,
        replicas=wanted.replicas,
    )
