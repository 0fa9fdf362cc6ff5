"""``carpool doctor``: can Carpool work here, and if not, what to do; ``carpool backup``: a copy of the journal."""

from __future__ import annotations

from pathlib import Path

import click

from carpool.cli.base.bug_report import write_report
from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.doctor_checks import DoctorCheck, gpu_checks, run_checks
from carpool.cli.base.journal_tools import copy_journal, journal_checks
from carpool.cli.base.options_common import OUTPUT_FILE, answer, plural, with_common_options
from carpool.cli.render.output import Output, stdout_output
from carpool.protocol.units import format_size

LOOK_AT_IT = "names, commands, paths and environments are left out; look at the file before you send it"


@click.command("doctor", short_help="Check whether Carpool can work on this machine.")
@click.option("--journal", is_flag=True, help="Check the daemon's journal instead; the daemon may run meanwhile.")
@click.option(
    "--report",
    type=OUTPUT_FILE,
    metavar="FILE",
    help="Write what a bug report needs to FILE, as in report.tar.gz.",
)
@with_common_options
def command(home: Path, as_json: bool, journal: bool, report: Path | None) -> int:
    """Check this machine: kernel features, library, directories, memory, daemon, GPUs.

    With --journal: the pages of the journal and its write-ahead log, rows that could not be read, and jobs that were
    acknowledged and are missing.  Every problem comes with a remedy.  Exit code 1 if there is one.

    With --report: versions, the checks, settings, devices, jobs, the last events and the end of the daemon's log, in a
    file for a bug report.  Names, commands, paths and environments are left out.  Nothing is sent.
    """
    if report is not None and journal:
        raise Problem(Exit.USAGE, "report_of_journal", "--report has the checks of the machine", "leave --journal out")
    checks = list(journal_checks(home)) if journal else [*run_checks(home), *gpu_checks()]
    if report is not None:
        return _report(report, home, checks, as_json)
    healthy = all(check.ok for check in checks)
    width, output = max(len(check.name) for check in checks), stdout_output()
    shown = (line for check in checks for line in _lines(check, width, output))
    return answer(as_json, {"ok": healthy, "checks": checks}, lambda: shown, Exit.OK if healthy else Exit.FAILED)


def _report(path: Path, home: Path, checks: list[DoctorCheck], as_json: bool) -> int:
    """Write the report, whatever the checks have found, and return the exit code.  Raises Problem."""
    try:
        parts = write_report(path, home, checks)
    except OSError as error:
        text = f"{path} cannot be written: {error.strerror}"
        raise Problem(Exit.FAILED, "report_not_written", text, "choose another file") from None
    said = f"written: {path} ({', '.join(parts)})"
    return answer(as_json, {"report": str(path), "files": parts}, lambda: [said, LOOK_AT_IT])


def _lines(check: DoctorCheck, width: int, output: Output) -> list[str]:
    """Return the lines of a check: the verdict, what was found, and the remedy."""
    mark, style = ("ok     ", "green") if check.ok else ("problem", "red")
    column = len(mark) + width + 4
    first, *rest = output.wrapped([f"{mark}  {check.name:<{width}}  {check.found}"], hanging=column)
    advice = [] if check.ok else [f"{'':{column}}-> {check.advice}"]
    return [first.replace(mark, output.painted(style, mark), 1), *rest, *output.wrapped(advice, hanging=column + 3)]


@click.command("backup", short_help="Copy the daemon's journal, without environments.")
@click.argument("file", type=OUTPUT_FILE)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@with_common_options
def backup(home: Path, as_json: bool, file: Path, force: bool) -> int:
    """Copy the journal to FILE, whether the daemon runs or not.  Only its owner may read the copy.

    The copy has neither environments nor targets of notices, which may hold secrets.  To go back to it: stop the
    daemon, move journal.sqlite and journal.sqlite-wal away, and put the copy in the place of journal.sqlite.  Jobs that
    run go on; jobs that had not started have to be submitted again, and models to be registered again.
    """
    made = copy_journal(home, file, force=force)
    return answer(as_json, made, lambda: [f"{made.file}: {plural(made.jobs, 'job')}, {format_size(made.bytes)}"])
