"""Reading and copying a journal without a daemon, in a process of the daemon's package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.doctor_checks import DoctorCheck
from carpool.protocol.api import ErrorBody, JournalListing

PROGRAM = "carpool.daemon.journal.offline"
T = TypeVar("T")


class BackupMade(msgspec.Struct, frozen=True):
    """Answer of `carpool backup`."""

    file: str
    bytes: int
    jobs: int


def journal_checks(home: Path) -> Iterator[DoctorCheck]:
    """Check the journal of ``home`` without changing it.  Raises Problem."""
    yield from _asked(list[DoctorCheck], "inspect", str(home))


def copy_journal(home: Path, file: Path, *, force: bool) -> BackupMade:
    """Copy the journal of ``home`` to ``file``.  Raises Problem."""
    return _asked(BackupMade, "backup", str(home), str(file), *(["--force"] if force else []))


def stored_jobs(home: Path) -> JournalListing:
    """Return the jobs in the journal of ``home`` without changing it.  Raises Problem."""
    return _asked(JournalListing, "list", str(home))


def _asked(kind: type[T], *arguments: str) -> T:
    command = [sys.executable, "-P", "-m", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode == 0:
        return msgspec.json.decode(done.stdout, type=kind)
    try:
        error = msgspec.json.decode(done.stdout, type=ErrorBody).error
    except msgspec.DecodeError:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or [""])[-1]
        text = f"{PROGRAM} {arguments[0]} ended with status {done.returncode}: {last}"
        raise Problem(Exit.FAILED, "journal_tool", text, "check the installation: carpool doctor") from None
    code = {"file_exists": Exit.REFUSED, "may_not_read": Exit.REFUSED, "no_journal": Exit.NOT_FOUND}.get(
        error.code, Exit.FAILED
    )
    raise Problem(code, error.code, error.message, error.hint)
