"""The files that ``carpool simulate`` writes."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.options_common import draft_of
from carpool.cli.simulation.options import Wanted
from carpool.protocol.missing_package import extra_hint
from carpool.protocol.paths import path_of_policy


def check_outputs(wanted: Wanted) -> None:
    """Check all files before any work.  Raises UsageError for a file with two uses, and for lists of many simulations.

    Raises Problem for a file that cannot be written, and for a report if plotly, which draws the charts, is missing.
    """
    _check_single(wanted)
    tables = [path for path in (wanted.jobs_csv, wanted.runs_csv) if path is not None]
    files = [path_of_policy(path, each, wanted.policies) for path in tables for each in wanted.policies]
    named = [path for path in (wanted.save_trace, wanted.report, *files) if path is not None]
    if len(_resolved(named)) != len(named):
        raise click.UsageError("Two outputs have the same file; give each its own.")
    _check_inputs(wanted, _resolved(named))
    _check_charts(wanted.report)
    for path in named:
        _check_writable(path)


def _check_single(wanted: Wanted) -> None:
    """Check that lists of jobs are of one simulation per policy.  Raises UsageError."""
    lists = {"--jobs-csv": wanted.jobs_csv, "--runs-csv": wanted.runs_csv}
    named = [option for option, path in lists.items() if path is not None]
    if named and wanted.several:
        text = "of one simulation per policy; leave out --replicas, and name one --seed and one --load"
        raise click.UsageError(f"{', '.join(named)}: {text}.")
    if wanted.save_trace is not None and len(wanted.all_seeds) * len(wanted.all_loads) > 1:
        raise click.UsageError("--save-trace is for the jobs of one --seed and one --load.")


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
    with _naming(path, "nothing was simulated; name a file that can be written"):
        path.open("ab").close()
        if new:
            path.unlink()
        elif _is_database(path):
            raise click.UsageError(f"{path} is a database, perhaps a daemon's journal; give the output another name.")
        with suppress(_Tried), _place(path) as draft:
            draft.open("ab").close()
            raise _Tried


class _Tried(Exception):
    """Ends the trial of a file before its draft takes its place."""


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Yield the path to write to; the file is there, whole, once the block ends, and unchanged if that raises.

    Raises Problem that names the file in place of OSError: the error of a full disk alone does not.
    """
    with _naming(path, "free disk space, or name a file elsewhere"), _place(path) as draft:
        yield draft


@contextmanager
def _place(path: Path) -> Iterator[Path]:
    """Yield where to write what becomes the file at ``path``; devices and pipes are written to directly."""
    target = path.resolve()
    if target.exists() and not target.is_file():
        yield path
        return
    mode = target.stat().st_mode if target.exists() else None
    with draft_of(target) as draft:
        yield draft
        if mode is not None:
            draft.chmod(mode)


@contextmanager
def _naming(path: Path, hint: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Problem(Exit.FAILED, "cannot_write", f"{path} cannot be written: {error.strerror}", hint) from error
