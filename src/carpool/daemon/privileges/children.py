"""Processes that work for the daemon, with nothing of its environment: their start, and the wait for their end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from carpool.daemon.privileges.base import Child, Privileges
from carpool.daemon.system.pidwatch import PidWatch

AGAIN_S = 0.05


async def ended_within(privileges: Privileges, child: Child, owner: int, patience_s: float) -> bool:
    """Return whether the child has ended by itself; it has ended in any case when this returns or is cancelled."""
    ended = asyncio.Event()
    PidWatch(child.pid, ended.set, child.fd)
    try:
        await asyncio.wait_for(ended.wait(), patience_s)
    except TimeoutError:
        return False
    finally:
        await asyncio.shield(_end(privileges, child, owner, ended))
    return True


async def _end(privileges: Privileges, child: Child, owner: int, ended: asyncio.Event) -> None:
    """Kill the child until it has ended: one just started is not yet its owner's and cannot be killed for a moment."""
    while not ended.is_set():
        with suppress(OSError):
            privileges.kill(child, owner)
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), AGAIN_S)
    child.collect()


def start_isolated(
    program: Path, arguments: Sequence[object], fds: Sequence[int], stderr: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start a Python file that needs the standard library only, in a session of its own; it inherits ``fds``.

    ``stderr``: as for `subprocess.Popen`.  Raises OSError.
    """
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(program), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        cwd="/",
        env={"LANG": "C.UTF-8"},
        pass_fds=fds,
        start_new_session=True,
    )
