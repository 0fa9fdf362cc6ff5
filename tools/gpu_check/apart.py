"""A command in a process of its own that is over in time, together with everything that it has started.

Nothing here calls the driver, and nothing waits for a process that the driver does not let go.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
#: A killed process that is still there after this is in the hands of the kernel, and left behind.
GONE_S = 5.0
LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Ended:
    status: int | None  # None: it has been killed after its time
    output: str
    errors: str


def run(command: list[str], limit_s: float, keep: Callable[[Path], None] = lambda _: None) -> Ended:
    """Its files, and those of its children, lie in a temporary directory that goes with it, when ``keep`` has seen it.

    What the driver says of calls that fail is in files ``cuda*.log`` there.  Raises OSError if it cannot be started.
    """
    adopt_orphans()
    with (
        tempfile.TemporaryDirectory(prefix="gpu-", ignore_cleanup_errors=True) as scratch,
        tempfile.TemporaryFile("w+", errors="replace") as output,  # a pipe could be kept open for ever
        tempfile.TemporaryFile("w+", errors="replace") as errors,
    ):
        environment = os.environ | {"TMPDIR": scratch, "CUDA_LOG_FILE": f"{scratch}/cuda.log"}
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, start_new_session=True
        )
        try:
            status = _status(process, limit_s)
        finally:
            end_descendants()
            keep(Path(scratch))
        output.seek(0)
        errors.seek(0)
        return Ended(status, output.read(), errors.read())


def adopt_orphans() -> None:
    """Processes whose parents have ended become children of this one, so that `descendants` finds them."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1, "adopt orphans")


def end_with_parent() -> None:
    """When the parent dies, however it does, this process ends as with a SIGTERM: `run` ends what it has started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM, "follow its parent")


def _prctl(option: int, value: int, what: str) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"the kernel does not let this process {what} (prctl)")


def end_descendants() -> None:
    """Kills them, and waits for as long as the kernel needs for ordinary ones."""
    deadline = time.monotonic() + GONE_S
    while (alive := _reaped(descendants(os.getpid()))) and time.monotonic() < deadline:
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_S)


def descendants(root: int) -> list[int]:
    """Also those that are dead and have not been waited for."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found[1:]


def _parents() -> Iterator[tuple[int, int]]:
    """Each process's number and its parent's."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            text = stat.read_text(errors="replace")  # "PID (NAME) STATE PARENT ...", and a name may hold anything
            yield int(text.partition(" ")[0]), int(text.rpartition(")")[2].split()[1])


def _reaped(pids: list[int]) -> list[int]:
    """Those that are left."""
    gone = set()
    with suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            gone.add(pid)
    return [pid for pid in pids if pid not in gone]


def _status(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
