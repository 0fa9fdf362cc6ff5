"""Where one daemon keeps its state: everything lies under ``CARPOOL_HOME``, so daemons can run side by side."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


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
    def pid_file(self) -> Path:
        """Locked (flock) while a daemon lives."""
        return self.root / "daemon.pid"

    @property
    def log(self) -> Path:
        return self.root / "daemon.log"

    @property
    def journal(self) -> Path:
        return self.root / "journal.sqlite"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    def job(self, job: int) -> JobFiles:
        return JobFiles(self.jobs / str(job))


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The files of one job; see docs/internals/contract.md for who writes them and when."""

    root: Path

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def exit(self) -> Path:
        return self.root / "exit.json"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def started(self) -> Path:
        return self.root / "started"


def default_home(environ: Mapping[str, str] | None = None) -> Path:
    """``$CARPOOL_HOME``, else ``$XDG_STATE_HOME/carpool``, else ``~/.local/state/carpool``; always absolute."""
    env = os.environ if environ is None else environ
    if env.get("CARPOOL_HOME"):
        return Path(env["CARPOOL_HOME"]).expanduser().absolute()
    state = env.get("XDG_STATE_HOME", "")
    # The XDG specification tells programs to ignore relative paths.
    base = Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state"
    return base / "carpool"
