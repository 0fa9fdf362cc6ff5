"""``carpool logs``: the output of a job."""

from __future__ import annotations

import codecs
import io
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from carpool.cli.base.job_output import file_pieces, own_file, stored_log
from carpool.cli.base.job_selection import the_job, with_one_job
from carpool.cli.base.job_words import JobWord
from carpool.cli.base.journal_jobs import JobReader, JournalJobs, answered, job_reader
from carpool.cli.base.options_common import POSITIVE, print_json, with_common_options
from carpool.protocol.display import escaped

_WITHIN_LINES = re.compile(r"[^\t\n]+")


@click.command("logs", short_help="Print the output of a job.")
@with_one_job
@click.option("--follow", "-f", is_flag=True, help="Keep printing until the job has ended.")
@click.option("--lines", "-n", type=POSITIVE, help="Only the last N lines (with -f, also what follows).")
@click.option(
    "--attempt", type=POSITIVE, help="Output of this attempt of a job that was retried.  [default: the latest]"
)
@click.option("--raw", is_flag=True, help="Print control characters unchanged, to a terminal, too.")
@click.option("--error", "-e", is_flag=True, help="Standard error of a job that was submitted with --error.")
@with_common_options
def command(home: Path, as_json: bool, job: JobWord, raw: bool, **part: Any) -> int:
    """Print what a job has written to standard output and standard error, wherever the job writes.

    A terminal is shown control characters as escapes, such as \\x1b, except with --raw; files and pipes get all bytes.
    With --json: one object per piece, {"text": "..."}.  While no daemon runs, the user who runs it reads what the files
    have, without --follow, and the exit code is 3.
    """
    with job_reader(home) as client:
        pieces = _pieces(client, the_job(client, job), **part)
        _write(pieces, as_json, raw or not sys.stdout.isatty())
        return answered(client)


def _pieces(
    client: JobReader, number: int, *, error: bool, attempt: int | None, lines: int | None, follow: bool
) -> Iterator[bytes]:
    path = own_file(client, number, attempt, error=error)
    if path is not None:
        return file_pieces(client, number, path, lines, follow=follow)
    return _kept(client, number, attempt, lines, follow=follow)


def _kept(client: JobReader, number: int, attempt: int | None, lines: int | None, *, follow: bool) -> Iterator[bytes]:
    """Yield pieces of the log that Carpool keeps."""
    if isinstance(client, JournalJobs):
        yield from stored_log(client, number, attempt, lines)
        return
    offset = 0
    if lines is not None:
        past, offset = client.past_log(number, attempt=attempt)
        yield b"".join(deque(past.splitlines(keepends=True), lines))
    if lines is None or follow:
        yield from client.logs(number, follow=follow, offset=offset, attempt=attempt)


def _write(pieces: Iterator[bytes], as_json: bool, raw: bool) -> None:
    """Write each piece as soon as it comes."""
    if as_json:
        for piece in filter(None, pieces):
            print_json({"text": piece.decode(errors="replace")})
            sys.stdout.flush()
        return
    for piece in pieces if raw else _for_terminal(pieces):
        sys.stdout.buffer.write(piece)
        sys.stdout.flush()


def _for_terminal(pieces: Iterator[bytes]) -> Iterator[bytes]:
    return (text.encode(sys.stdout.encoding, "backslashreplace") for text in visible_pieces(pieces))


def visible_pieces(pieces: Iterable[bytes]) -> Iterator[str]:
    r"""Yield the text with characters that are not printable as escapes; a character may lie in two pieces.

    A return to the beginning of a line (``\r``, as of progress bars) begins a new line.
    """
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    for piece in pieces:
        yield _visible(decoder.decode(piece))
    yield _visible(decoder.decode(b"", final=True))


def _visible(text: str) -> str:
    return _WITHIN_LINES.sub(lambda found: escaped(found[0]), text)
