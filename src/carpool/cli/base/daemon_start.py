"""Starting the daemon, by hand (`carpool up`) or with the first submission."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.render.progress import Progress
from carpool.protocol.api import ErrorInfo
from carpool.protocol.client import DaemonClient, DaemonNotRunning
from carpool.protocol.environment import REQUEST_VARIABLE
from carpool.protocol.packets import readable
from carpool.protocol.paths import BY_UMASK, LOG_FLAGS, SYSTEM_HOME, Home, is_anothers, open_regular, read_regular
from carpool.protocol.units import exact_size

START_TIMEOUT_S = 120.0  # populating the memory of large devices takes seconds per GiB
RETRY_S = 0.05
ROUND_S = 2.0
DYING_S = 5.0
LOG_TAIL = 5
#: Variables of a job that this process may belong to: the daemon outlives the job and is not part of it.
JOB_VARIABLES = ("CARPOOL_JOB", "CARPOOL_JOB_FD", "CARPOOL_JOB_PID", "CARPOOL_JOIN", REQUEST_VARIABLE)

#: Options that commands pass on to the daemon as they are, and how their values are written.
_WRITTEN: dict[str, Callable[[Any], str]] = {
    "user": str,
    "sharing": str,
    "store": exact_size,
    "threads": str,
    "telemetry_interval": lambda us: f"{us}us",
    "metrics": str,
    "log_format": str,
}


class DaemonReady(msgspec.Struct, frozen=True):
    """The line that a starting daemon writes to its --ready-fd, with an error or without."""

    pid: int | None = None
    note: str = ""  # which devices the daemon has chosen by itself
    error: ErrorInfo | None = None


class StartupFailed(Problem):
    """The daemon said, or left in its log, why it cannot start."""


def connected(home: Path) -> DaemonClient:
    """Return a client of the running daemon; if none runs, start a daemon with its default settings."""
    client = DaemonClient(home)
    try:
        client.connect()
    except DaemonNotRunning:
        with Progress("starting the daemon"):
            _start_or_join(client, home)
    return client


def _start_or_join(client: DaemonClient, home: Path) -> None:
    """Start a daemon and connect; if two clients race for the lock of the home, both use the daemon that wins."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            say_note(start_daemon(home, ()))
        except StartupFailed as failure:
            if failure.info.code != "already_running" or time.monotonic() > deadline:
                raise
        if _connects(client, min(deadline, time.monotonic() + ROUND_S)):
            return


def _connects(client: DaemonClient, deadline: float) -> bool:
    """Try to connect until ``deadline``: the daemon that won the race takes a moment to listen, or dies."""
    while True:
        try:
            client.connect()
        except DaemonNotRunning:
            if time.monotonic() > deadline:
                return False
            time.sleep(RETRY_S)
        else:
            return True


def say_note(note: str) -> None:
    """Print a note on standard error; standard output is for the job's id."""
    if note:
        print(f"carpool: {note}", file=sys.stderr)


def start_daemon(home: Path, options: Sequence[str]) -> str:
    """Start a daemon for ``home`` and wait until it is ready; return its note for users.  Raises StartupFailed."""
    read_end, write_end = os.pipe()
    arguments = ["--home", str(home), "--ready-fd", str(write_end), *options]
    try:
        with _open_log(Home(home)) as log:
            process = subprocess.Popen(
                # -P: what lies in the current directory must not be imported.
                [sys.executable, "-P", "-m", "carpool.daemon", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=_daemon_environment(),
                pass_fds=(write_end,),
                start_new_session=True,
            )
        os.close(write_end)
        write_end = -1
        line = _read_line(read_end)
    finally:
        os.close(read_end)
        if write_end >= 0:
            os.close(write_end)
    return _understood(line, process, Home(home))


def daemon_arguments(options: Mapping[str, Any]) -> list[str]:
    """Return the daemon's command line for options by name; None: not given."""
    given = [(name, value) for name, value in options.items() if value is not None]
    return [word for name, value in given for word in (f"--{name.replace('_', '-')}", _WRITTEN[name](value))]


def _open_log(home: Home):  # type: ignore[no-untyped-def]  # a binary file
    try:
        if not home.root.exists():
            home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            home.root.chmod(0o711 if os.geteuid() == 0 else 0o700)  # whatever the umask is
        with _as_owner(home.root):
            return open(open_regular(home.log, LOG_FLAGS, BY_UMASK, device=True), "ab")
    except OSError as error:
        raise StartupFailed(
            Exit.NO_DAEMON,
            "home_unusable",
            f"cannot use {error.filename or home.root} for the daemon's state: {error.strerror}",
            _no_home_hint(home),
        ) from None


def _no_home_hint(home: Home) -> str:
    if home.root == SYSTEM_HOME or is_anothers(home):
        return "the server's daemon does not run: an administrator starts the daemon (systemctl start carpool)"
    return "set CARPOOL_HOME (or --home) to a directory that you may write to"


@contextmanager
def _as_owner(directory: Path) -> Iterator[None]:
    """Act as the directory's owner if the caller is root: root follows no link of that user (`carpool up --user`)."""
    owner = directory.stat().st_uid
    if os.geteuid() != 0 or owner == 0:
        yield
        return
    os.seteuid(owner)
    try:
        yield
    finally:
        os.seteuid(0)


def _daemon_environment() -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if name not in JOB_VARIABLES}
    preloads = [path for path in env.pop("LD_PRELOAD", "").split(":") if path and "libcarpool" not in path]
    if preloads:
        env["LD_PRELOAD"] = ":".join(preloads)
    return env


def _read_line(fd: int) -> bytes:
    """Read a line, or what comes before the pipe ends or `START_TIMEOUT_S` has passed; empty if nothing came."""
    deadline = time.monotonic() + START_TIMEOUT_S
    text = b""
    while not text.endswith(b"\n"):
        chunk = os.read(fd, 4096) if readable(fd, deadline - time.monotonic()) else b""
        if not chunk:
            break
        text += chunk
    return text


def _understood(line: bytes, process: subprocess.Popen[bytes], home: Home) -> str:
    if not line:
        raise _silent(process, home)
    ready = msgspec.json.decode(line, type=DaemonReady)
    if ready.error is not None:
        process.wait()
        raise StartupFailed(Exit.NO_DAEMON, ready.error.code, ready.error.message, ready.error.hint)
    process.returncode = 0  # the daemon outlives this process: Popen need not warn about that
    return ready.note


def _silent(process: subprocess.Popen[bytes], home: Home) -> StartupFailed:
    try:
        code = process.wait(DYING_S)  # the daemon closes the pipe a moment before it has ended
        what = f"the daemon exited during start-up (exit code {code})"
    except subprocess.TimeoutExpired:
        process.terminate()
        what = f"the daemon was not ready after {START_TIMEOUT_S:g} s and was stopped"
    tail = read_regular(home.log).decode(errors="replace").splitlines()[-LOG_TAIL:]
    return StartupFailed(Exit.NO_DAEMON, "start_failed", what, "\n  ".join([f"last lines of {home.log}:", *tail]))
