"""The paths of a daemon's state, all of which lie under ``CARPOOL_HOME``, so that daemons can run side by side."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from carpool.protocol.display import user_name

#: Home of the daemon that serves all users of a machine.
SYSTEM_HOME = Path("/var/lib/carpool")


@dataclass(frozen=True, slots=True)
class Home:
    """The files of one daemon.  Nothing here touches the disk."""

    root: Path

    @property
    def socket(self) -> Path:
        """The socket of the HTTP API."""
        return self.root / "carpool.sock"

    @property
    def session_socket(self) -> Path:
        """The socket at which shims register."""
        return self.root / "session.sock"

    @property
    def joining_socket(self) -> Path:
        """The session socket by another name, alone in a directory that containers mount."""
        return self.root / "joining" / "session.sock"

    @property
    def pid_file(self) -> Path:
        """The file that is locked (flock) while a daemon lives."""
        return self.root / "daemon.pid"

    @property
    def ledger(self) -> Path:
        """The record of what the daemon has given to each job (`carpool.daemon.seats.ledger`)."""
        return self.root / "ledger"

    @property
    def limits(self) -> Path:
        """The limits and rights of users (`carpool.daemon.config.limits`); written by an administrator."""
        return self.root / "limits.toml"

    @property
    def control_groups(self) -> Path:
        """The record of where the daemon has made control groups (`carpool.daemon.cgroups.places`)."""
        return self.root / "control-groups"

    @property
    def log(self) -> Path:
        """The daemon's log."""
        return self.root / "daemon.log"

    @property
    def journal(self) -> Path:
        """The daemon's journal."""
        return self.root / "journal.sqlite"

    @property
    def journal_log(self) -> Path:
        """SQLite's write-ahead log of the journal."""
        return self.root / "journal.sqlite-wal"

    @property
    def acknowledged(self) -> Path:
        """The largest job number that has been told to a user (`carpool.daemon.journal.salvage`)."""
        return self.root / "acknowledged"

    @property
    def calibration(self) -> Path:
        """The speed of the machine's cores, as `carpool calibrate` has measured it; for simulations."""
        return self.root / "calibration.json"

    @property
    def predictions(self) -> Path:
        """How well the simulator has predicted the jobs of past days (`carpool.protocol.predictions`)."""
        return self.root / "predictions.jsonl"

    @property
    def jobs(self) -> Path:
        """The directory with a directory for each job."""
        return self.root / "jobs"

    @property
    def removed(self) -> Path:
        """Directories of jobs that are no longer kept, until they are deleted."""
        return self.root / "removed"

    def job(self, job: int, attempt: int = 1) -> JobFiles:
        """Return the files of an attempt of a job."""
        return JobFiles(self.jobs / str(job), attempt)


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The files of one job; see docs/internals/contract.md for who writes them and when.

    What belongs to one attempt has its number at the end of its name, from the second one on.
    """

    root: Path
    attempt: int = 1

    @property
    def log(self) -> Path:
        """The output of the attempt."""
        return self._of_attempt("log")

    @property
    def exit(self) -> Path:
        """The record of how the attempt ended."""
        return self._of_attempt("exit.json")

    @property
    def lock(self) -> Path:
        """The file that the shim keeps locked while it lives."""
        return self.root / "lock"

    @property
    def started(self) -> Path:
        """The file that is there once the attempt may have begun."""
        return self._of_attempt("started")

    def _of_attempt(self, name: str) -> Path:
        return self.root / (name if self.attempt == 1 else f"{name}.{self.attempt}")


def may_not_be_read(journal: Path) -> str:
    """Return why this process cannot read a journal; empty if it can, or if there is none."""
    try:
        os.close(open_regular(journal))
    except PermissionError:
        owner = owner_of(journal)
        users = "root" if not owner else f"{user_name(owner)} and root"
        return f"only {users} may read the journal {journal}"
    except OSError:
        pass
    return ""


def owner_of(path: Path) -> int | None:
    """Return the uid of a file's owner; None if the file does not exist or its directory is closed to this process."""
    try:
        return path.stat().st_uid
    except OSError:
        return None


def is_anothers(home: Home) -> bool:
    """Whether another user's daemon has its state there: a daemon of this user would compete with that one."""
    return owner_of(home.journal) not in (None, os.geteuid())


def expanded(text: str) -> Path:
    """Replace ``~`` and ``~user``.  Raises FileNotFoundError for an unknown home directory."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise FileNotFoundError(errno.ENOENT, "no such home directory is known; write the whole path", text) from None


def default_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return ``$CARPOOL_HOME``; else the home of this user's daemon if that runs; else the server's; always absolute.

    The user's own home is ``$XDG_STATE_HOME/carpool`` or ``~/.local/state/carpool``, and is also taken if there is no
    server's.
    """
    own = own_home(env := os.environ if environ is None else environ)
    if env.get("CARPOOL_HOME") or not made_by_root(SYSTEM_HOME):
        return own
    return own if _listens(Home(own)) else SYSTEM_HOME


def own_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return ``$CARPOOL_HOME``, else the home of this user's own daemon, running or not; always absolute."""
    env = os.environ if environ is None else environ
    if env.get("CARPOOL_HOME"):
        return expanded(env["CARPOOL_HOME"]).absolute()
    return _xdg(env, "XDG_STATE_HOME", ".local/state")


def _listens(home: Home) -> bool:
    """Whether a daemon of this user listens there.

    False for a daemon that was killed, and for that of another user, whose $HOME this may be.
    """
    import socket  # only needed where there is a server's home as well

    try:
        if os.lstat(home.socket).st_uid != os.geteuid():
            return False
        with socket.socket(socket.AF_UNIX) as connection:
            connection.setblocking(False)
            connection.connect(os.fspath(home.socket))
    except BlockingIOError:  # so many processes are connecting that this one would have to wait
        return True
    except OSError:
        return False
    return True


def made_by_root(directory: Path) -> bool:
    """Whether only root can have put a directory there, and only its owner can put anything into it.

    The directory itself may belong to its daemon's user (`carpool up --user`), to whom root has given it.
    """
    try:
        above = [parent.lstat() for parent in directory.parents]
        there = directory.lstat()
    except OSError:
        return False
    return all(_only_its_owners(place) for place in (there, *above)) and all(place.st_uid == 0 for place in above)


def _only_its_owners(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def cache_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory for data that can be made again: ``$XDG_CACHE_HOME/carpool``, else ``~/.cache/carpool``."""
    return _xdg(os.environ if environ is None else environ, "XDG_CACHE_HOME", ".cache")


def engines_file(environ: Mapping[str, str] | None = None) -> Path:
    """Return the user's file of engines: ``$XDG_CONFIG_HOME/carpool/engines.toml``, else in ``~/.config/carpool``."""
    return _xdg(os.environ if environ is None else environ, "XDG_CONFIG_HOME", ".config") / "engines.toml"


def _xdg(env: Mapping[str, str], name: str, default: str) -> Path:
    # The XDG specification tells programs to ignore relative paths.
    given = Path(env.get(name, ""))
    return (given if given.is_absolute() else expanded("~") / default) / "carpool"


def path_of_policy(path: Path, policy: str, policies: Sequence[str]) -> Path:
    """Return where `carpool simulate` writes one policy's lines: of several, each has a file with its name."""
    if len(policies) == 1:
        return path
    return path.with_name(f"{path.stem}-{re.sub(r'[^A-Za-z0-9_.-]+', '_', policy).strip('._')}{path.suffix}")


#: Flags for a log, which may be a device.
LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND
#: Modes of a new file: for its owner alone, or as the umask says.
PRIVATE, BY_UMASK = 0o600, 0o666


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = PRIVATE, *, device: bool = False) -> int:
    """Open a regular file.  Raises OSError, also for another kind of file.

    With ``device`` it may also be a device, such as /dev/null.
    """
    try:
        fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, mode)
    except OSError as error:
        raise _irregular(path) if error.errno == errno.ENXIO else error from None
    try:
        kind = os.fstat(fd).st_mode
        if not (stat.S_ISREG(kind) or (device and stat.S_ISCHR(kind))):
            raise _irregular(path)
    except OSError:
        os.close(fd)
        raise
    return fd


def _irregular(path: Path) -> OSError:
    return OSError(errno.EINVAL, "this is not a regular file: move it away", str(path))


def read_regular(path: Path) -> bytes:
    """Read a whole file.  Raises OSError, also for what is not a regular file."""
    with open(open_regular(path), "rb") as file:
        return file.read()


def pwrite_all(fd: int, data: bytes, offset: int) -> None:
    """Write all of ``data`` at ``offset``.  Raises OSError; a part may have been written then."""
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written
