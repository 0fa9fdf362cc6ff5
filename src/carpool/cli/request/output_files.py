"""The files of ``--output`` and ``--error``: checked at submission, opened by the job's shim when the job starts."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from carpool.cli.base.cli_error import Exit, Problem
from carpool.protocol.job_names import filled
from carpool.protocol.paths import expanded

#: Options that name files to write to.
FILES = ("output", "error")


def own_files(
    asked: Mapping[str, str | None], directory: Path, name: str, index: int | None
) -> tuple[str | None, str | None]:
    """Return absolute paths, in which only the job's id is left to be filled in.  Raises Problem."""
    values = {"x": name, "u": _user()} | ({} if index is None else {"a": str(index)})
    output, error = (_own_file(option, asked.get(option), directory, values) for option in FILES)
    return output, error


def _own_file(option: str, template: str | None, directory: Path, values: dict[str, str]) -> str | None:
    if template is None:
        return None
    try:
        made = filled(template, values)
        if "%a" in made.replace("%%", ""):
            raise ValueError("%a is the index of a job in an array or a grid, and this job is in none")
    except ValueError as why:
        raise Problem(Exit.USAGE, f"bad_{option}", f"--{option} {template}: {why}") from None
    path = expanded(made)
    if not path.is_absolute():
        path = Path(str(directory).replace("%", "%%")) / path
    _check(option, str(path).replace("%%", "%"), template)
    return str(path)


def _check(option: str, path: str, template: str) -> None:
    """Check the path as far as now possible: a directory with the job's id in its name is unknown.  Raises Problem."""
    parent = os.path.dirname(path)  # noqa: PTH120 - a slash at the end means a directory
    if template.endswith("/") or Path(path).is_dir():
        raise Problem(Exit.USAGE, f"bad_{option}", f"--{option}: {path} is a directory", f"for example: {path}/%j.out")
    if "%j" not in parent and not Path(parent).is_dir():
        raise Problem(Exit.NOT_FOUND, f"bad_{option}", f"--{option}: there is no directory {parent}", "create it first")


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
