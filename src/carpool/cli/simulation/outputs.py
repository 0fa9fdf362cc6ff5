"""The files that ``carpool simulate`` writes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import click

from carpool.cli.exit_codes import Exit
from carpool.cli.problem import Problem
from carpool.cli.simulation.wanted import Wanted


def csv_path(wanted: Wanted, policy: str) -> Path | None:
    """Where a policy's jobs go: with several policies each has a file, named after it."""
    path = wanted.jobs_csv
    if path is None or len(wanted.policies) == 1:
        return path
    return path.with_name(f"{path.stem}-{re.sub(r'[^A-Za-z0-9_.-]+', '_', policy).strip('._')}{path.suffix}")


def check_outputs(wanted: Wanted) -> None:
    """Before any work: raises UsageError for one name with two uses, and Problem for a file that cannot be written."""
    paths = [wanted.save_trace, wanted.report, *(csv_path(wanted, policy) for policy in wanted.policies)]
    named = [path for path in paths if path is not None]
    if len(_resolved(named)) != len(named):
        raise click.UsageError("Two outputs have the same file; give each its own.")
    if wanted.trace is not None and wanted.trace.resolve() in _resolved(named):
        raise click.UsageError("An output would overwrite the TRACE file; give it another name.")
    for path in named:
        _check_writable(path)
        if _is_database(path):
            raise click.UsageError(f"{path} is a database, perhaps a daemon's journal; give the output another name.")


def _resolved(paths: Iterable[Path]) -> set[Path]:
    return {path.resolve() for path in paths}


def _is_database(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def _check_writable(path: Path) -> None:
    """Without changing a file that exists, or leaving one that does not."""
    new = not path.exists()
    try:
        path.open("ab").close()
    except OSError as error:
        hint = "nothing was simulated; name a file that can be written"
        raise Problem(Exit.FAILED, "cannot_write", f"{path} cannot be written: {error.strerror}", hint) from error
    if new:
        path.unlink()
