"""What the daemon notes of its calls of policies, for a process that looks on from outside (`call_watcher`).

A call that comes back to the interpreter is interrupted (`carpool.daemon.system.call_limit`).  A call that does not,
such as a loop in C, keeps the daemon from doing anything at all: then the process outside ends the daemon, and the next
daemon begins with Carpool's own policies.  The note is a file that both have mapped, so that the end needs no room on
the disk.
"""

from __future__ import annotations

import logging
import mmap
import os
import subprocess
from pathlib import Path

from carpool.core.model import Settings
from carpool.daemon.system.isolated import start_isolated

log = logging.getLogger(__name__)
WATCHER = Path(__file__).with_name("call_watcher.py")
LOOK_S = 1.0
#: Looks that find the daemon in one and the same call; more than a policy's import may take.
LOOKS = 20
#: A word that changes with the beginning and the end of each call, odd inside; another that says that one never ended.
SIZE = 16


class PolicyCalls:
    """The calls of this daemon.

    ``never_returned``: the daemon before this one was ended because of a call; ``fault``: what users are told of that.

    The process outside is started with the first call: few daemons have policies of others.
    """

    def __init__(self, path: Path, look_s: float = LOOK_S) -> None:
        """Raises OSError."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.posix_fallocate(self._fd, 0, SIZE)
        self._mapping = mmap.mmap(self._fd, SIZE)
        self._words = memoryview(self._mapping).cast("Q")
        self._look_s = look_s
        self._watcher: subprocess.Popen[bytes] | None = None
        self._tried = False
        self.never_returned = bool(self._words[1])
        self.fault: str | None = None

    def begin(self) -> None:
        """A call of code that is not ours begins."""
        if not self._tried:
            self._tried = True
            self._watch()
        self._words[0] |= 1

    def end(self) -> None:
        """The call has come back."""
        self._words[0] += self._words[0] & 1

    def replaced(self, chosen: Settings, now: Settings) -> None:
        """The settings ``now`` are in force instead of those that were ``chosen``, which may have ended a daemon."""
        pairs = ((chosen.policy, now.policy), (chosen.placement, now.placement))
        hung = " or ".join(name for name, own in pairs if name != own) or "a policy that was to be loaded"
        own = f"{now.policy} and {now.placement} are in force until a policy is chosen anew"
        self.fault = f"{hung} did not return from a call, so that the daemon was ended: {own}"
        log.error("%s", self.fault)
        self._words[1] = 0

    def close(self) -> None:
        """No call is watched any more."""
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.wait()
        self._words.release()
        self._mapping.close()
        os.close(self._fd)

    def _watch(self) -> None:
        numbers = (os.getpid(), self._fd, self._look_s, LOOKS)
        try:
            self._watcher = start_isolated(WATCHER, numbers, (self._fd,))
        except OSError as error:
            log.warning("nothing ends the daemon if a policy never returns: no process can be started: %s", error)
