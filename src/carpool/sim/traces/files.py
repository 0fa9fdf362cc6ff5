"""Opening trace files, plain or compressed, and reading their rows with true line numbers.

Shared by the readers of other projects' traces: counting skipped jobs, and starting the clock at zero.
"""

from __future__ import annotations

import csv
import gc
import gzip
import io
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO, cast

from carpool.sim.model.trace_job import WHOLE_PPM, TraceJob

_GZIP = b"\x1f\x8b"


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn errors of reading a file into a TraceError."""
    try:
        yield
    except UnicodeDecodeError:
        raise TraceError.at(path, "", "this is not text in UTF-8; save it as UTF-8, or name its format") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError.at(path, "", f"the compressed file is damaged ({error}); fetch it again") from None
    except OSError as error:
        raise TraceError.at(path, "", f"it cannot be read: {error.strerror}; check the name") from None


def open_bytes(path: Path) -> BinaryIO:
    """Open a file's bytes; a gzip file is recognized by its first bytes and unpacked."""
    with path.open("rb") as raw:
        compressed = raw.read(len(_GZIP)) == _GZIP
    return cast("BinaryIO", gzip.open(path, "rb")) if compressed else path.open("rb")


def open_text(path: Path) -> TextIO:
    """Open a file as UTF-8, with or without a byte order mark; line ends stay as they are."""
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", newline="")


def rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield each row of a CSV file with the number of the line on which it begins; blank lines are skipped."""
    with readable(path), open_text(path) as file:
        reader = csv.reader(file)
        line = 1
        try:
            for row in reader:
                if row and not (len(row) == 1 and not row[0].strip()):
                    yield line, row
                line = reader.line_num + 1
        except csv.Error as error:
            raise TraceError.at(path, f"line {line}", f"{error}; is a quotation mark not closed?") from None


@contextmanager
def without_collection() -> Iterator[None]:
    """Suspend Python's garbage collector while a million jobs are made, which contain no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_SHOWN = 40  # characters of a bad cell that a message repeats


class TraceError(ValueError):
    """The message names the file, the line if there is one, what is wrong, and what to do."""

    @classmethod
    def at(cls, path: Path, place: str, text: str) -> TraceError:
        """Make an error.  ``place`` is "line 17", "job 3" or empty for the file as a whole."""
        return cls(f"{path}, {place}: {text}" if place else f"{path}: {text}")


def quoted(cell: object) -> str:
    """Return a value as a message shows it: on one line, and shortened."""
    text = str(cell).encode("unicode_escape").decode()
    return f'"{text[:_SHOWN]}..."' if len(text) > _SHOWN else f'"{text}"'


class Found(NamedTuple):
    """A job on the clock of its trace; times are microseconds."""

    submit_us: int
    id: str
    duration_us: int
    gpus: int
    utilization_ppm: int = WHOLE_PPM
    owner: int = 0
    model: str = ""


class Collection:
    """Jobs, and the reasons for which others are left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: list[Found] = []
        self._skipped: Counter[tuple[str, str]] = Counter()
        self._numbers: dict[str, int] = {}

    def add(self, found: Found) -> None:
        """Keep a job."""
        self._found.append(found)

    def skip(self, one: str, many: str) -> None:
        """Count a skipped job.  ``one`` and ``many`` finish the sentence "skipped 1 ..." and "skipped 7 ..."."""
        self._skipped[one, many] += 1

    def number(self, user: str) -> int:
        """Return the number of a user; users are numbered in the order in which they appear."""
        return self._numbers.setdefault(user, len(self._numbers))

    def finish(self) -> tuple[list[TraceJob], list[str]]:
        """Return jobs in order of submission, with times from the first one, and notes.

        Raises TraceError if no job is left.
        """
        notes = [f"skipped {count:,} {one if count == 1 else many}" for (one, many), count in self._skipped.items()]
        if not self._found:
            detail = f" ({'; '.join(notes)})" if notes else ""
            raise TraceError.at(self._path, "", f"there is no job to simulate{detail}; check that the file is whole")
        self._found.sort(key=lambda found: found.submit_us)
        first = self._found[0].submit_us
        ids = _Ids()
        with without_collection():
            return [_job(found, first, ids.unique(found.id)) for found in self._found], notes


class _Ids:
    """Makes ids unique that a trace uses more than once: a, a#2, a#3."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._repeats: Counter[str] = Counter()

    def unique(self, name: str) -> str:
        result = name
        while result in self._seen:
            self._repeats[name] += 1
            result = f"{name}#{self._repeats[name] + 1}"
        self._seen.add(result)
        return result


def _job(found: Found, first: int, name: str) -> TraceJob:
    return TraceJob(
        id=name,
        submit_us=found.submit_us - first,
        duration_us=found.duration_us,
        gpus=found.gpus,
        utilization_ppm=found.utilization_ppm,
        owner=found.owner,
        model=found.model,
    )
