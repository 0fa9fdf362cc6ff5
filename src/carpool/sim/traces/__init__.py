"""Traces: files that list which job arrives when, and the choice of a reader.  docs/traces.md describes the formats."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

from carpool.sim.model.trace_job import TraceJob
from carpool.sim.traces import alibaba
from carpool.sim.traces.files import TraceError, open_bytes, readable
from carpool.sim.traces.journal import read_journal, read_machine
from carpool.sim.traces.journal_engines import read_engines
from carpool.sim.traces.philly import read_philly
from carpool.sim.traces.table import read_table, write_trace

__all__ = [
    "FORMATS",
    "TraceError",
    "read_engines",
    "read_journal",
    "read_machine",
    "read_trace",
    "read_trace_with_notes",
    "write_trace",
]

Reader = Callable[[Path], tuple[list[TraceJob], list[str]]]

READERS: dict[str, Reader] = {"csv": read_table, "philly": read_philly, "alibaba": alibaba.read_alibaba}
FORMATS = ("auto", *READERS)

_HEAD = 4096  # bytes that tell one format from another
_SQLITE = b"SQLite format 3\0"


def read_trace(path: Path, format: str = "auto") -> list[TraceJob]:  # noqa: A002 - it is the word for it
    """Read the jobs of a trace file, which may be compressed with gzip.

    ``auto`` looks at how the file begins.  Raises TraceError for the first error in the file, and ValueError for a
    format that does not exist.
    """
    jobs, _ = read_trace_with_notes(path, format)
    return jobs


def read_trace_with_notes(path: Path, format: str = "auto") -> tuple[list[TraceJob], list[str]]:  # noqa: A002
    """Read a trace as `read_trace` does, and return notes for users about what was left out."""
    if format not in FORMATS:
        raise ValueError(f'"{format}" is not a trace format; use one of {", ".join(FORMATS)}')
    return READERS[detect(path) if format == "auto" else format](path)


def detect(path: Path) -> str:
    """Return the format's name, from the first bytes and, if these leave it open, the extension.  Raises TraceError."""
    with readable(path), open_bytes(path) as file:
        head = file.read(_HEAD)
    if head.startswith(_SQLITE):
        raise TraceError.at(path, "", "this is a database, not a trace; read a journal of Carpool as a journal")
    text = head.decode("utf-8-sig", "replace").lstrip()
    if text[:1] in ("[", "{") or ".json" in path.suffixes:
        return "philly"
    return "alibaba" if _is_alibaba(text) else "csv"


def _is_alibaba(text: str) -> bool:
    row = next(csv.reader(text.splitlines()[:1]), [])
    if tuple(row) in (alibaba.V2020, alibaba.V2023):
        return True
    return len(row) == len(alibaba.V2020) and row[3] in alibaba.STATUSES
