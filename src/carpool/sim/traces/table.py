"""Carpool's own format: CSV with a header.  docs/traces.md describes the columns."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from carpool.sim.model.trace_job import TraceJob
from carpool.sim.results.csv_files import PlainLines
from carpool.sim.traces.columns import (
    BY_NAME,
    COLUMNS,
    DEFAULTS,
    ESTIMATE,
    Column,
    column_named,
    complete,
    estimate_column,
)
from carpool.sim.traces.files import TraceError, quoted, rows, without_collection
from carpool.sim.traces.numbers import Unfit

_PARTS = {"iterations", "iteration_ms", "host_ms", "end_s"}  # of a duration


def read_table(path: Path) -> tuple[list[TraceJob], list[str]]:
    """Read a file.  Raises TraceError for the first row that is wrong."""
    lines = rows(path)
    header = next(lines, None)
    if header is None:
        raise TraceError.at(
            path, "", "the file is empty; its first line must name the columns, at least job_id, submit_s"
        )
    parser = _Parser(path, *header)
    with without_collection():
        jobs = [parser.job(line, row) for line, row in lines]
    if not jobs:
        raise TraceError.at(path, "", "there are no jobs below the header; add one line for each job")
    return jobs, []


class _Parser:
    """Parses rows; remembers the columns and the ids that have occurred."""

    def __init__(self, path: Path, line: int, header: list[str]) -> None:
        self._path = path
        names = [name.strip() for name in header]
        self._columns = _columns(path, line, names)
        self._timed = _PARTS.isdisjoint(names)  # with only a duration nothing is derived
        self._estimated = any(column.estimator for column in self._columns)
        self._ids: set[str] = set()

    def job(self, line: int, row: list[str]) -> TraceJob:
        if len(row) != len(self._columns):
            raise self._wrong(
                line, f"there are {len(row)} fields, but the header names {len(self._columns)}; fix the line"
            )
        fields: dict[str, Any] = {}
        for column, cell in zip(self._columns, row, strict=True):
            if cell:
                try:
                    value = column.parse(cell)
                except Unfit as why:
                    raise self._unfit(line, column, cell, str(why)) from None
                estimator = column.estimator if self._estimated else None
                fields[column.field] = _with(fields, estimator, value) if estimator else value
        self._complete(line, fields)
        if "id" not in fields or "submit_us" not in fields:
            raise self._missing(line, fields)
        if fields["id"] in self._ids:
            raise self._wrong(line, f"job_id {quoted(fields['id'])} is used a second time; give each job its own")
        self._ids.add(fields["id"])
        return TraceJob(**fields)

    def _complete(self, line: int, fields: dict[str, Any]) -> None:
        if self._timed and "duration_us" in fields:
            return
        try:
            complete(fields)
        except ValueError as error:
            raise self._wrong(line, str(error)) from None

    def _missing(self, line: int, fields: dict[str, Any]) -> TraceError:
        column = next(column for column in COLUMNS if column.required and column.field not in fields)
        return self._wrong(line, f"{column.name} is empty; it must be {column.rule}")

    def _unfit(self, line: int, column: Column, cell: str, why: str) -> TraceError:
        detail = f" ({why})" if why else ""
        return self._wrong(line, f"{column.name} is {quoted(cell)}{detail}; it must be {column.rule}")

    def _wrong(self, line: int, text: str) -> TraceError:
        return TraceError.at(self._path, f"line {line}", text)


def _columns(path: Path, line: int, header: list[str]) -> list[Column]:
    place = f"line {line}"
    columns: list[Column] = []
    for position, name in enumerate(header):
        column = column_named(name)
        if column is None:
            known = ", ".join((*BY_NAME, ESTIMATE.name))
            raise TraceError.at(path, place, f"the column {quoted(name)} is unknown; remove it, or use one of {known}")
        if name in header[:position]:
            raise TraceError.at(path, place, f"the column {name} is there twice; remove one of them")
        columns.append(column)
    for column in COLUMNS:
        if column.required and column.name not in header:
            raise TraceError.at(
                path, place, f"the column {column.name} is missing; add it to the header and to each line"
            )
    if "duration_s" not in header and not {"iterations", "iteration_ms"} <= set(header):
        raise TraceError.at(
            path, place, "the column duration_s is missing; add it, or both iterations and iteration_ms"
        )
    return columns


def _with(fields: dict[str, Any], estimator: str, size: int) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((*fields.get(ESTIMATE.field, ()), (estimator, size))))


def write_trace(jobs: Sequence[TraceJob], path: Path) -> None:
    """Write one line for each job, with the columns that some job needs; compressed if the name ends in .gz.

    `read_trace` gives back equal jobs.  Raises ValueError for a job that no trace can hold.
    """
    used = [column for column in COLUMNS if _used(column, jobs)]
    used += map(estimate_column, sorted({name for job in jobs for name, _ in job.estimates}))
    with _create(path) as file:
        writer = csv.writer(PlainLines(file))
        writer.writerow([column.name for column in used])
        writer.writerows(_cells(job, used) for job in jobs)


def _used(column: Column, jobs: Sequence[TraceJob]) -> bool:
    if column.field not in DEFAULTS:
        return True
    return any(getattr(job, column.field) != DEFAULTS[column.field] for job in jobs)


def _cells(job: TraceJob, used: list[Column]) -> Iterator[str]:
    if (job.iterations is None) != (job.iteration_us is None) or job.startup_us < 0 or job.end_us >= job.duration_us:
        raise ValueError(f"job {quoted(job.id)} cannot be written: its parts do not fit into its duration")
    for column in used:
        value = getattr(job, column.field)
        if column.estimator:
            value = dict(value).get(column.estimator)
        yield "" if value is None else column.show(value)


def _create(path: Path) -> TextIO:
    if path.suffix == ".gz":
        # No time stamp, so that equal jobs give equal files.
        return io.TextIOWrapper(gzip.GzipFile(path, "wb", mtime=0), encoding="utf-8", newline="")
    return path.open("w", encoding="utf-8", newline="")
