"""Simulate under each policy, with each load and seed, and write the files that were asked for."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.render.progress import Progress
from carpool.cli.simulation import source as sources
from carpool.cli.simulation.choices import check_estimator
from carpool.cli.simulation.options import Wanted
from carpool.cli.simulation.outputs import writing
from carpool.cli.simulation.study_options import MEASURED
from carpool.protocol.paths import path_of_policy
from carpool.protocol.units import format_duration

if TYPE_CHECKING:
    from carpool.sim.model.options import Options
    from carpool.sim.model.replicas import Spread
    from carpool.sim.model.result import Result
    from carpool.sim.model.trace_job import TraceJob
    from carpool.sim.results.provenance import MadeWith
    from carpool.sim.study.figures import StudyRow
    from carpool.sim.study.job_sources import JobSource
    from carpool.sim.study.simulations import Combination, Study, StudyRun

MOST_FAILURES = 10  # that are named in a message
MILLION = 1_000_000


@dataclass(frozen=True)
class StudyAnswer:
    """The rows of a table.  ``several``: each is of several simulations."""

    rows: Sequence[StudyRow]
    several: bool
    made_with: MadeWith

    @property
    def rows_with_figures(self) -> list[StudyRow]:
        """The rows of which a simulation has ended well."""
        return [row for row in self.rows if row.figures]

    def for_json(self) -> Any:
        """Return one object per row; the row itself if there is one."""
        found = [self._row(row) for row in self.rows]
        return found if len(found) > 1 else found[0]

    def _row(self, row: StudyRow) -> dict[str, Any]:
        """Return the fields of a `Summary`, means if there are several, and what the row was made with."""
        from carpool.sim.study.figures import means, ranges

        found = {"policy": row.policy, **means(row.figures), "made_with": _given(self.made_with)}
        if row.load is not None:
            found["load"] = row.load
        if self.several:
            runs = [{"seed": each.seed, **dataclasses.asdict(summary)} for each, summary in row.finished]
            found |= {"ranges": ranges(row.figures), "runs": runs}
        if row.failed:
            found["failures"] = [{"seed": run.combination.seed, "error": run.error} for run in row.failed]
        return found

    def check(self) -> None:
        """Raise a Problem that names the simulations that have failed, if any has."""
        failed = [run for row in self.rows for run in row.failed]
        if not failed:
            return
        total = sum(len(row.runs) for row in self.rows)
        if total == 1:
            raise Problem(Exit.FAILED, "simulation", failed[0].error)
        told = [f"{run.combination}: {run.error}" for run in failed[:MOST_FAILURES]]
        more = [f"and {len(failed) - MOST_FAILURES} more"] if len(failed) > MOST_FAILURES else []
        text = "\n".join([f"{len(failed)} of {total} simulations failed", *told, *more])
        raise Problem(Exit.FAILED, "simulation", text, "the figures are those of the others")


def run_all(wanted: Wanted, source: JobSource, options: Sequence[Options], home: Path) -> StudyAnswer:
    """Simulate and write files.  Raises Problem."""
    from carpool.sim.study.figures import rows_of_study
    from carpool.sim.study.job_sources import jobs_of
    from carpool.sim.study.simulations import Study

    jobs = jobs_of(source, wanted.all_loads[0], wanted.all_seeds[0])
    check_estimator(wanted, jobs)
    if wanted.save_trace is not None:
        sources.save_jobs(jobs, wanted.save_trace)
    made_with = sources.made_with(wanted, home, jobs)
    chosen = {each.settings.policy: _with_resolution(wanted, jobs, each) for each in options}
    seeds = wanted.all_seeds if wanted.replicas is None else range(wanted.replicas)
    study = Study(_replicated(wanted, source, jobs), chosen, wanted.all_loads, seeds, _keeps(wanted))
    rows = rows_of_study(_simulated(wanted, study), study.combinations())
    if wanted.report is not None:
        _report(wanted, rows, made_with)
    return StudyAnswer(rows, wanted.several, made_with)


class _Watch:
    """How far a study has come: on a progress line, and in the message about an interruption."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._ended = 0
        self.text = f"0 of {total:,} simulations"
        self.written: list[Path] = []

    def going_on(self, combination: Combination, done: int, jobs: int) -> None:
        """Note how many jobs of the present simulation have ended."""
        what = f"{done:,} of {jobs:,} jobs"
        before = f"{self._ended:,} of {self._total:,} simulations, {combination}:"
        self._say(f"{before if self._total > 1 else combination.policy} {what}", self._ended + done / jobs)

    def ended(self) -> None:
        """Note that one more simulation has ended."""
        self._ended += 1
        self._say(f"{self._ended:,} of {self._total:,} simulations", self._ended)

    def _say(self, text: str, done: float) -> None:
        self.text = text
        self._progress.update(text, done, self._total)

    def interrupted(self) -> Problem:
        """Return the message about Ctrl-C."""
        whole = ", ".join(map(str, self.written))
        return Problem(Exit.INTERRUPTED, "interrupted", f"interrupted: {self.text}", whole and f"written: {whole}")


def _simulated(wanted: Wanted, study: Study) -> list[StudyRun]:
    """Simulate, and write lists of jobs as simulations end; no file is left half-written by Ctrl-C."""
    from carpool.sim.study.simulations import simulating

    progress, found = Progress("simulating", not wanted.quiet), []
    watch = _Watch(progress, len(study.combinations()))
    try:
        with simulating(study, wanted.processes or 1, watch.going_on) as runs, progress:
            for run in runs:
                watch.ended()
                watch.written += _write_csv(wanted, run.result)
                found.append(run if wanted.report is not None else dataclasses.replace(run, result=None))
    except KeyboardInterrupt:
        raise watch.interrupted() from None
    return found


def _keeps(wanted: Wanted) -> bool:
    """Whether more than summaries is wanted: a million jobs are a gigabyte."""
    report = wanted.report is not None and not wanted.several
    return report or wanted.jobs_csv is not None or wanted.runs_csv is not None


def _replicated(wanted: Wanted, source: JobSource, jobs: Sequence[TraceJob]) -> JobSource:
    """Return the source of the jobs to simulate: with --replicas, drawn from ``source``; with a note on the spreads."""
    if wanted.replicas is None:
        return source
    from carpool.sim.model.replicas import Spread
    from carpool.sim.study.job_sources import Replicated

    own = wanted.spread in (None, MEASURED)
    share = 0.0 if own else int(wanted.spread or 0) / MILLION
    replicated = Replicated(source, wanted.all_seeds[0], None if own else Spread(share, share))
    if own and jobs:
        print(_about_spreads(replicated.spreads(jobs)), file=sys.stderr)
    return replicated


def _about_spreads(spreads: Sequence[Spread]) -> str:
    """Return a note about measured spreads."""
    startup, pace = map(median, zip(*spreads, strict=True))
    unknown = (
        "" if all(spread.pace for spread in spreads) else "; paces of commands that ran once are taken as they were"
    )
    return f"measured spreads, medians of the jobs: start-ups {startup:.1%}, paces {pace:.1%}{unknown}"


def _with_resolution(wanted: Wanted, jobs: Sequence[TraceJob], options: Options) -> Options:
    """Set the resolution that --resolution gives, else one that keeps the simulation short, and print a note then."""
    from carpool.sim.model.options import suggested_resolution_us

    if wanted.resolution_us is not None:
        return dataclasses.replace(options, resolution_us=wanted.resolution_us)
    resolution = suggested_resolution_us(jobs, options.settings)
    if resolution:
        policy, time = options.settings.policy, format_duration(resolution)
        print(f"{policy}: turns shorter than {time} are not modelled (--resolution 0 models all)", file=sys.stderr)
    return dataclasses.replace(options, resolution_us=resolution)


def _write_csv(wanted: Wanted, result: Result | None) -> Iterator[Path]:
    """Write the lists of a simulation that were asked for, and yield their paths."""
    from carpool.sim.results.csv_files import write_jobs_csv, write_runs_csv

    for wish, write in ((wanted.jobs_csv, write_jobs_csv), (wanted.runs_csv, write_runs_csv)):
        if wish is not None and result is not None:
            path = path_of_policy(wish, result.options.settings.policy, wanted.policies)
            with writing(path) as draft:
                write(result, draft)
            yield path


def _report(wanted: Wanted, rows: Sequence[StudyRow], made_with: MadeWith) -> None:
    from carpool.sim.report import write_report, write_study

    assert wanted.report is not None, "checked before"
    results = [run.result for row in rows for run in row.runs if run.result is not None]
    with Progress("writing the report", not wanted.quiet), writing(wanted.report) as draft:
        if wanted.several:
            write_study(rows, draft, made_with)
        else:
            write_report(results, draft, made_with)


def _given(made_with: MadeWith) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(made_with).items() if value is not None}
