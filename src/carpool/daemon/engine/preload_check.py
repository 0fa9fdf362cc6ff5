"""Whether libcarpool can be loaded into the program that a command runs.  The file is read, never run.

The program is looked for as the job's start will look for it: `os.execvpe` in the job's directory, with its PATH; a
script is run by the interpreter that its first line names, as far as the kernel goes (execve(2)).  The dynamic
loader ignores LD_PRELOAD where there is no loader, and where a program gets rights that its user has not (ld.so(8),
secure-execution mode).

What is read is what the owner of the job may read: see `carpool.daemon.system.drop_privileges`.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from carpool.daemon.engine.elf import ElfMachine, OddFile, Program, read_program

#: As far as the kernel goes.
_MOST_SCRIPTS = 5
_FIRST_LINE = 256
_CAPABILITIES = "security.capability"
NO_ATTRIBUTE = (errno.ENODATA, errno.ENOTSUP, errno.EPERM)


@dataclass(frozen=True, slots=True)
class Command:
    """As it was submitted."""

    name: str  # argv[0]
    cwd: str
    path: str  # the PATH of its environment
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Look:
    """``beyond``: nothing can be loaded into it.  ``text`` says why, or why nobody knows; empty: all is as usual."""

    beyond: bool
    text: str = ""


def look(command: Command, library: Path) -> Look:
    """What the thread that calls it may read of the command's program, compared with our library.  Raises nothing."""
    found = _tried(command, library)
    return dataclasses.replace(found, text=_encodable(found.text))


def _encodable(text: str) -> str:
    """Names of files need not be UTF-8; the journal and the API are."""
    return text.encode(errors="backslashreplace").decode()


def _tried(command: Command, library: Path) -> Look:
    try:
        with _Opened(library) as fd:
            machine = read_program(fd).machine
        return _look(command, machine)
    except (OddFile, OSError, ValueError) as error:  # the last for NUL in a name
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return Look(False, f"it is not known whether libcarpool can be loaded into {command.name}: {why}")


def _look(command: Command, machine: ElfMachine) -> Look:
    path = _found(command)
    for _ in range(_MOST_SCRIPTS):
        with _Opened(path) as fd:
            interpreter = _interpreter(fd)
            if interpreter is None:
                return _judged(path, fd, machine, command)
        path = Path(command.cwd) / interpreter
    raise OddFile("too many scripts, one run by the other")


def _judged(path: Path, fd: int, machine: ElfMachine, command: Command) -> Look:
    program = read_program(fd)
    if program.asks_for_loader:
        why = _why_beyond(fd, program, machine, command)
        return Look(bool(why), f"{path} {why}" if why else "")
    if program.is_library:
        raise OddFile("it is a library, or the dynamic loader itself")
    # Launchers pass LD_PRELOAD on to what they start; others are seen beside Carpool, and known from then on.
    return Look(False, f"{path} is statically linked: it is not known yet whether the program itself uses a device")


def _why_beyond(fd: int, program: Program, machine: ElfMachine, command: Command) -> str:
    if program.machine != machine:
        return "is for another kind of machine than libcarpool"
    if gains_rights(os.fstat(fd), _capabilities(fd), command.uid, command.gid) and not _keeps_rights(fd):
        return "gets rights that its user has not: the dynamic loader does not preload libraries into it"
    return ""


def gains_rights(status: os.stat_result, capabilities: bytes, uid: int, gid: int) -> bool:
    """Whether the kernel tells the loader to be careful with a program (AT_SECURE of getauxval(3))."""
    if status.st_mode & stat.S_ISUID and status.st_uid != uid:
        return True
    # Without the group's right to execute the bit means something else.
    if status.st_mode & stat.S_ISGID and status.st_mode & stat.S_IXGRP and status.st_gid != gid:
        return True
    permitted = [word for word, _ in struct.iter_unpack("<II", capabilities[4 : 4 + (len(capabilities) - 4) // 8 * 8])]
    return uid != 0 and any(permitted[:2])


def _keeps_rights(fd: int) -> bool:
    return bool(os.fstatvfs(fd).f_flag & os.ST_NOSUID)


def _capabilities(fd: int) -> bytes:
    """A `vfs_cap_data` (capabilities(7)): a word, then pairs of what is permitted and what is inheritable."""
    try:
        return os.getxattr(fd, _CAPABILITIES)
    except OSError as error:
        if error.errno in NO_ATTRIBUTE:
            return b""
        raise


# Finding it


def _found(command: Command) -> Path:
    """Raises FileNotFoundError."""
    for path in _candidates(command):
        fd = _known(path)
        if fd is not None:
            os.close(fd)
            return path
    raise FileNotFoundError(errno.ENOENT, "there is no such program")


def _candidates(command: Command) -> Iterator[Path]:
    directory = Path(command.cwd)
    if "/" in command.name:
        yield directory / command.name
        return
    for entry in command.path.split(os.pathsep):
        yield directory / entry / command.name


def _known(path: Path) -> int | None:
    """A descriptor that can do nothing yet, of a regular file that may be run; anything else is passed over."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None
    # The file that is open, whatever has its name by now.
    if stat.S_ISREG(os.fstat(fd).st_mode) and os.access(_itself(fd), os.X_OK, effective_ids=True):
        return fd
    os.close(fd)
    return None


def _itself(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


class _Opened:
    """A regular file, open for reading.  Opening it sets off nothing: what else has such a name is not opened."""

    def __init__(self, path: Path) -> None:
        known = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(known).st_mode):
                raise OddFile("it is no regular file")
            self._fd = os.open(_itself(known), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        finally:
            os.close(known)

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _interpreter(fd: int) -> str | None:
    """That of a script; None: it is none."""
    first = os.pread(fd, _FIRST_LINE, 0)
    if not first.startswith(b"#!"):
        return None
    line, newline, _ = first[2:].partition(b"\n")
    words = line.split()
    if not words or not (newline or len(words) > 1 or len(first) < _FIRST_LINE):
        raise OddFile("its first line names no interpreter")
    if b"\0" in words[0]:
        raise OddFile("its first line names no interpreter")
    return os.fsdecode(words[0])
