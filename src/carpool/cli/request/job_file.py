"""Job files: TOML with the options of `carpool submit`, for one job or many.

Keys at the top hold for all jobs; each ``[[job]]`` adds its own, or overrides.  A file without any is one job.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carpool.cli.base.cli_error import Exit, Problem
from carpool.core.spelling import did_you_mean
from carpool.options.codecs import Literal
from carpool.options.table import KEYS

Values = dict[str, Any]
Mistake = tuple[int, str]  # line, text of the mistake
_MERGED = ("environment", "param")
_PLACE = re.compile(r" \(at line (\d+), column (\d+)\)$")
_HEADER = re.compile(r"\s*\[(\[?)\s*([^\[\]]+?)\s*\]")
JOBS = "job"  # the name of the tables


@dataclass(frozen=True, slots=True)
class JobFile:
    """``jobs``: for each job the values of its keys, converted; the file's path and text for messages."""

    path: Path
    text: str
    jobs: list[Values]

    def problem(self, job: int, key: str, message: str, code: Exit = Exit.USAGE, hint: str = "") -> Problem:
        """Return a Problem about a key of a job, with its line; the key may be written at the top of the file."""
        number = job if re.search(rf"^\s*\[\[\s*{JOBS}\s*\]\]", self.text, re.MULTILINE) else None
        line = line_of(self.text, number, key)
        if number is not None and line == line_of(self.text, number, None):
            line = line_of(self.text, None, key)
        return _problem(self.path, [(line, message)], code, hint)


def read_job_file(path: Path) -> JobFile:
    """Read and check a whole job file.  Raises Problem with file and line."""
    text = _text(path)
    try:
        table = tomllib.loads(text, parse_float=Literal)
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, tables within tables without end
        place = _PLACE.search(str(error))
        where = f"{path}:{place[1]}:{place[2]}" if place else f"{path}:{len(text.splitlines())}"
        raise Problem(Exit.USAGE, "bad_job_file", f"{where}: {_PLACE.sub('', str(error))}") from None
    return _read(path, text, table)


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        hint = f"to run a program of that name: carpool submit -- ./{path.name}"
        raise Problem(Exit.NOT_FOUND, "no_job_file", f"there is no file {path}", hint) from None
    except OSError as error:
        raise Problem(Exit.USAGE, "bad_job_file", f"{path} cannot be read: {error.strerror}") from None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        raise _problem(path, [(line, f"the file is not UTF-8, which TOML requires: {error.reason}")]) from None


def _read(path: Path, text: str, table: Values) -> JobFile:
    tables = _tables(path, text, table)
    mistakes = [] if "command" in table else _without_command(text, tables)
    common = _converted(text, None, table, mistakes)
    own = [_converted(text, number, each, mistakes) for number, each in enumerate(tables or [])]
    if mistakes:
        raise _problem(path, mistakes)
    return JobFile(path, text, [_merged(common, each) for each in own] if tables else [common])


def _tables(path: Path, text: str, table: Values) -> list[Values] | None:
    """Take the tables of single jobs out of ``table``; None: the file is one job.  Raises Problem."""
    tables = table.pop(JOBS, None)
    if tables == []:
        raise _problem(path, [(line_of(text, None, JOBS), "the file has no jobs")])
    if tables is not None and not (isinstance(tables, list) and all(isinstance(each, dict) for each in tables)):
        raise _problem(path, [(line_of(text, None, JOBS), "write each job as a [[job]] table")])
    return tables


def _without_command(text: str, tables: list[Values] | None) -> list[Mistake]:
    """Return a mistake for each job without a command, where the file has no command for all jobs."""
    lines = [line_of(text, number, None) for number, each in enumerate(tables or []) if "command" not in each]
    lines = [line_of(text, None, None)] if tables is None else lines
    return [(line, f"the job has no command: {KEYS['command'].toml}") for line in lines]


def _converted(text: str, job: int | None, table: Values, mistakes: list[Mistake]) -> Values:
    """Convert the values of a table; values that a key does not allow are added to ``mistakes``."""
    values = {}
    for name, value in table.items():
        if name not in KEYS:
            mistakes.append((line_of(text, job, name), f"unknown key {name!r}{_meant(name)}"))
            continue
        try:
            values[name] = KEYS[name].type.toml(value)
        except ValueError as error:
            mistakes.append((line_of(text, job, name), f"{name}: {error}; allowed is {KEYS[name].toml}"))
    if "venv" in values and "conda" in values:
        mistakes.append((line_of(text, job, "conda"), "venv and conda exclude each other"))
    return values


def _meant(name: str) -> str:
    return f"; {did_you_mean(name, KEYS).strip() or 'allowed are ' + ', '.join(KEYS)}"


def _merged(common: Mapping[str, Any], own: Values) -> Values:
    """Merge a job's values over the common ones: tables are joined, and venv and conda take each other's place."""
    base = dict(common)
    if "venv" in own or "conda" in own:
        base = {name: value for name, value in base.items() if name not in ("venv", "conda")}
    joined = {name: base[name] | own[name] for name in _MERGED if name in base and name in own}
    return base | own | joined


def _problem(path: Path, mistakes: Sequence[Mistake], code: Exit = Exit.USAGE, hint: str = "") -> Problem:
    """Return a Problem with all mistakes, in order of their lines."""
    lines = [f"{path}:{line}: {message}" for line, message in sorted(mistakes, key=lambda mistake: mistake[0])]
    hints = [*([hint] if hint else []), "nothing has been submitted"]
    return Problem(code, "bad_job_file", "\n".join(lines), "\n  ".join(hints))


def line_of(text: str, job: int | None, key: str | None) -> int:
    """Return the line, from 1 on, of ``key`` in the ``job``-th [[job]] of a TOML file (from 0; None: outside of jobs).

    Without such a key (which may be written in a form that is not recognised) the line of the table, else 1.
    """
    lines = [(number, table, line) for number, here, table, line in _placed(text) if here == job]
    begin = next((number for number, table, line in lines if table == JOBS), 1)
    if key is None:
        return begin
    assigned = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]")
    return next((number for number, table, line in lines if _has(line, table, key, assigned)), begin)


def _has(line: str, table: str, key: str, assigned: re.Pattern[str]) -> bool:
    """Whether a line begins the table of a key, or gives the key its value."""
    if _HEADER.match(line):
        return table in (key, f"{JOBS}.{key}")
    return table in ("", JOBS) and assigned.match(line) is not None


def _placed(text: str) -> Iterator[tuple[int, int | None, str, str]]:
    """Yield the lines of a file, with their number, their job (None: outside of jobs) and their table."""
    table, seen = "", -1
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = header[2].replace('"', "")
            seen += bool(header[1]) and table == JOBS
        yield number, seen if table.partition(".")[0] == JOBS else None, table, line
