"""The files that ``carpool simulate`` writes."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.simulation.options import Wanted
from carpool.protocol.missing_package import extra_hint
from carpool.protocol.paths import path_of_policy


def check_outputs(wanted: Wanted) -> None:
    """Check all files before any work.  Raises UsageError for a file with two uses.

    Raises Problem for a file that cannot be written, and for a report if plotly, which draws the charts, is missing.
    """
    tables = [path for path in (wanted.jobs_csv, wanted.runs_csv) if path is not None]
    files = [path_of_policy(path, each, wanted.policies) for path in tables for each in wanted.policies]
    named = [path for path in (wanted.save_trace, wanted.report, *files) if path is not None]
    if len(_resolved(named)) != len(named):
        raise click.UsageError("Two outputs have the same file; give each its own.")
    _check_inputs(wanted, _resolved(named))
    _check_charts(wanted.report)
    for path in named:
        _check_writable(path)


def _check_inputs(wanted: Wanted, outputs: set[Path]) -> None:
    for name, source in (("TRACE", wanted.trace), ("--services", wanted.services)):
        if source is not None and source.resolve() in outputs:
            raise click.UsageError(f"An output would overwrite the {name} file; give it another name.")


def _check_charts(report: Path | None) -> None:
    if report is not None and importlib.util.find_spec("plotly") is None:
        message = "--report needs the Python package plotly, which is not installed"
        raise Problem(Exit.FAILED, "no_plotly", message, extra_hint("report"))


def _resolved(paths: Iterable[Path]) -> set[Path]:
    return {path.resolve() for path in paths}


def _is_database(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def _check_writable(path: Path) -> None:
    """Check that a file can be written, without changing an existing file or leaving a new one."""
    new = not path.exists()
    with writing(path, "nothing was simulated; name a file that can be written"):
        path.open("ab").close()
    if new:
        path.unlink()
    elif _is_database(path):
        raise click.UsageError(f"{path} is a database, perhaps a daemon's journal; give the output another name.")


@contextmanager
def writing(path: Path, hint: str = "free disk space, or name a file elsewhere") -> Iterator[None]:
    """Turn an OSError into a Problem that names the file; the error of a full disk alone does not."""
    try:
        yield
    except OSError as error:
        raise Problem(Exit.FAILED, "cannot_write", f"{path} cannot be written: {error.strerror}", hint) from error
