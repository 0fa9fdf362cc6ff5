"""Where one daemon keeps its state: everything lies under ``CARPOOL_HOME``, so daemons can run side by side."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from carpool.protocol.regular_files import open_regular
from carpool.protocol.user_names import user_name

#: Of the daemon that serves all users of a machine.
SYSTEM_HOME = Path("/var/lib/carpool")


@dataclass(frozen=True, slots=True)
class Home:
    """The files of one daemon.  Nothing here touches the disk."""

    root: Path

    @property
    def socket(self) -> Path:
        """HTTP API."""
        return self.root / "carpool.sock"

    @property
    def session_socket(self) -> Path:
        """Shims register here."""
        return self.root / "session.sock"

    @property
    def joining_socket(self) -> Path:
        """The session socket by another name, alone in a directory that containers mount."""
        return self.root / "joining" / "session.sock"

    @property
    def pid_file(self) -> Path:
        """Locked (flock) while a daemon lives."""
        return self.root / "daemon.pid"

    @property
    def ledger(self) -> Path:
        """What the daemon has given to each job (`carpool.daemon.seats.ledger`)."""
        return self.root / "ledger"

    @property
    def limits(self) -> Path:
        """What users may do, and how much (`carpool.daemon.config.limits`); written by an administrator."""
        return self.root / "limits.toml"

    @property
    def control_groups(self) -> Path:
        """Where the daemon has made control groups (`carpool.daemon.cgroups.places`)."""
        return self.root / "control-groups"

    @property
    def log(self) -> Path:
        return self.root / "daemon.log"

    @property
    def journal(self) -> Path:
        return self.root / "journal.sqlite"

    @property
    def journal_log(self) -> Path:
        """SQLite's write-ahead log of the journal."""
        return self.root / "journal.sqlite-wal"

    @property
    def acknowledged(self) -> Path:
        """The largest number of a job that a user was told (`carpool.daemon.journal.losses`)."""
        return self.root / "acknowledged"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    @property
    def removed(self) -> Path:
        """Directories of jobs that are no longer kept, until they are deleted."""
        return self.root / "removed"

    @property
    def mps_pipe(self) -> Path:
        """Where programs find the MPS control daemon that `carpool mps on` has started."""
        return self.root / "mps" / "pipe"

    @property
    def mps_log(self) -> Path:
        return self.root / "mps" / "log"

    @property
    def mps_on(self) -> Path:
        """There from `carpool mps on` to `carpool mps off`."""
        return self.root / "mps" / "on"

    def job(self, job: int, attempt: int = 1) -> JobFiles:
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
        return self._of_attempt("log")

    @property
    def exit(self) -> Path:
        return self._of_attempt("exit.json")

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def started(self) -> Path:
        return self._of_attempt("started")

    def _of_attempt(self, name: str) -> Path:
        return self.root / (name if self.attempt == 1 else f"{name}.{self.attempt}")


def may_not_be_read(journal: Path) -> str:
    """Why this process cannot read a journal; empty where it can, and where there is none."""
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
    """The uid of a file's owner; None: there is no such file, or it lies in a directory that is closed to us."""
    try:
        return path.stat().st_uid
    except OSError:
        return None


def is_anothers(home: Home) -> bool:
    """Whether the daemon of another user has its state there: a daemon of one's own would only compete with it."""
    return owner_of(home.journal) not in (None, os.geteuid())


def expanded(text: str) -> Path:
    """``~`` and ``~user`` are replaced.  Raises FileNotFoundError where nobody knows that home directory."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise FileNotFoundError(errno.ENOENT, "no such home directory is known; write the whole path", text) from None


def default_home(environ: Mapping[str, str] | None = None) -> Path:
    """``$CARPOOL_HOME``; else the home of a daemon of one's own that runs; else the server's; always absolute.

    One's own is in ``$XDG_STATE_HOME/carpool`` or ``~/.local/state/carpool``, and is taken where the server has none.
    """
    own = own_home(env := os.environ if environ is None else environ)
    if env.get("CARPOOL_HOME") or not made_by_root(SYSTEM_HOME):
        return own
    return own if _listens(Home(own)) else SYSTEM_HOME


def own_home(environ: Mapping[str, str] | None = None) -> Path:
    """``$CARPOOL_HOME``, else where a daemon of one's own has its home, whether or not it runs; always absolute."""
    env = os.environ if environ is None else environ
    if env.get("CARPOOL_HOME"):
        return expanded(env["CARPOOL_HOME"]).absolute()
    return _xdg(env, "XDG_STATE_HOME", ".local/state")


def _listens(home: Home) -> bool:
    """Whether a daemon of this user does: none that was killed, and none of another user, whose $HOME this may be."""
    import socket  # only wanted where there is a server's home as well

    try:
        if os.lstat(home.socket).st_uid != os.geteuid():
            return False
        with socket.socket(socket.AF_UNIX) as connection:
            connection.setblocking(False)
            connection.connect(os.fspath(home.socket))
    except BlockingIOError:  # so many are connecting that this one would have to wait
        return True
    except OSError:
        return False
    return True


def made_by_root(directory: Path) -> bool:
    """Whether nobody but root can have put a directory there, and nobody else can put anything into it.

    The directory itself may be its daemon's user's (`carpool up --user`), to whom root has given it.
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
    """What can be made again: ``$XDG_CACHE_HOME/carpool``, else ``~/.cache/carpool``."""
    return _xdg(os.environ if environ is None else environ, "XDG_CACHE_HOME", ".cache")


def _xdg(env: Mapping[str, str], name: str, default: str) -> Path:
    # The XDG specification tells programs to ignore relative paths.
    given = Path(env.get(name, ""))
    return (given if given.is_absolute() else expanded("~") / default) / "carpool"
