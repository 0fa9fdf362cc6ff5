"""Operations through a helper of root (`helper`): the daemon itself has no rights over others' processes and files."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from carpool.daemon.privileges.base import Child, signal_process, start_isolated
from carpool.daemon.system.errors import StartupError
from carpool.daemon.system.pidwatch import PidWatch
from carpool.protocol.paths import Home

log = logging.getLogger(__name__)
HELPER = Path(__file__).with_name("helper.py")
#: The helper never waits for users' files; the slowest case is a user database that does not answer.
PATIENCE_S = 60.0
LARGEST_ANSWER = 4096
GONE = "the helper of this daemon, which runs as root, has ended"


class HelperPrivileges:
    """Asks the helper and waits for its answer.  Once the helper has ended, everything raises OSError (EAGAIN)."""

    def __init__(self, home: Home, process: subprocess.Popen[bytes], connection: socket.socket) -> None:
        """Take ownership of the connection."""
        self._home = home
        self._process = process
        self._connection = connection
        self._lock = threading.Lock()  # trees are removed and orphans are ended in threads
        self._watch: PidWatch | None = None

    @property
    def pid(self) -> int:
        """The pid of the helper."""
        return self._process.pid

    @property
    def serves_others(self) -> bool:
        """Always True: all jobs belong to other users."""
        return True

    @property
    def suspends(self) -> bool:
        """Always False: the processes belong to other users, and the helper must not load the driver's library."""
        return False

    def why_not(self, uid: int) -> str:
        """Refuse jobs of root, and of the user who runs the daemon."""
        if uid == 0:
            return "this daemon does not run as root, and starts no jobs of root"
        return "this daemon starts no jobs of the user who runs it" if uid == os.geteuid() else ""

    def create_directory(self, job: int, owner: int, gid: int) -> None:
        """Make the directory and let the helper give it to the owner."""
        self._make(job)
        self._ask("create", job=job, uid=owner, gid=gid)

    def open_owned(self, path: Path, owner: int) -> int:
        """Return the file's descriptor, which the helper has opened."""
        job, name = path.relative_to(self._home.jobs).parts
        return self._ask("open", job=int(job), name=name, uid=owner)[1][0]

    def spawn_shim(self, job: int, attempt: int, owner: int, gid: int) -> Child | None:
        """Let the helper start a shim."""
        self._make(job)
        answer, fds = self._ask("spawn", job=job, attempt=attempt, uid=owner, gid=gid)
        return Child(answer["pid"], fds[0]) if fds else None

    def _make(self, job: int) -> None:
        """Make a job's directory; an existing one is not touched: its owner may have mounted a file system there."""
        with suppress(FileExistsError):
            self._home.job(job).root.mkdir(mode=0o700)

    def signal(self, pidfd: int, owner: int, number: int) -> None:
        """Let the helper send the signal."""
        self._ask("signal", (pidfd,), uid=owner, number=int(number))

    def environment(self, pid: int, owner: int) -> bytes:
        """Read the environment, whose file the helper has opened."""
        with open(self._ask("environ", pid=pid, uid=owner)[1][0], "rb") as file:
            return file.read()

    def set_aside(self, job: int) -> None:
        """Let the helper move the directory."""
        self._ask("aside", job=job)

    def spawn_remover(self, jobs: Sequence[int]) -> Child:
        """Let the helper start the process."""
        answer, fds = self._ask("remove", jobs=list(jobs))
        return Child(answer["pid"], fds[0])

    def spawn_notifier(self, fd: int, owner: int, gid: int) -> Child:
        """Let the helper start the process, with a duplicate of the socket."""
        answer, fds = self._ask("notify", (fd,), uid=owner, gid=gid)
        return Child(answer["pid"], fds[0])

    def kill(self, child: Child, owner: int) -> None:
        """Kill the child by way of the helper."""
        signal_process(self, child.pid, owner, signal.SIGKILL)

    def watch(self, lost: Callable[[], None]) -> None:
        """Watch for the end of the helper."""
        self._watch = PidWatch(self._process.pid, lost)

    def close(self) -> None:
        """Close the connection, which ends the helper; processes that it has started go on."""
        if self._watch is not None:
            self._watch.stop()
        self._connection.close()
        self._process.wait()

    def _ask(self, operation: str, fds: Sequence[int] = (), **fields: object) -> tuple[dict[str, int], list[int]]:
        """Return the helper's answer and its descriptors, which the caller owns.  Raises OSError."""
        with self._lock:
            answer, found = self._exchange(json.dumps({"op": operation, **fields}).encode(), fds)
        if "errno" in answer:
            raise OSError(answer["errno"], str(answer["text"]))
        return answer, found

    def _exchange(self, request: bytes, fds: Sequence[int]) -> tuple[dict[str, int], list[int]]:
        try:
            socket.send_fds(self._connection, [request], list(fds))
            data, found, flags, _ = socket.recv_fds(self._connection, LARGEST_ANSWER, 1)
        except OSError as error:
            self._connection.close()  # a late answer would be taken for the answer to the next request
            raise OSError(errno.EAGAIN, f"{GONE}: {error}") from None
        if not data:
            raise OSError(errno.EAGAIN, GONE)
        if flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return json.loads(data), found


def start_helper(home: Home, uid: int) -> HelperPrivileges:
    """Start the helper for a core of user ``uid``; call as root, before any user data is read.  Raises StartupError."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        fd = theirs.fileno()
        process = start_isolated(HELPER, (home.root, uid, fd), (fd,), stderr=subprocess.PIPE)
    ours.settimeout(PATIENCE_S)
    with suppress(OSError):
        if ours.recv(LARGEST_ANSWER):
            assert process.stderr is not None
            process.stderr.close()
            return HelperPrivileges(home, process, ours)
    ours.close()
    process.kill()
    said = process.communicate()[1].decode(errors="replace").strip().splitlines()
    text = f"the helper, which stays root, does not start: {said[-1] if said else 'it says nothing'}"
    raise StartupError("no_helper", text, "Linux 5.6 or newer is needed; without --user the daemon runs as root")
