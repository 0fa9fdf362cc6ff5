"""Waiting for a process of a user's that does some work for the daemon, and ending it when that takes too long."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from carpool.daemon.privileges.base import Child, Privileges
from carpool.daemon.system.pidwatch import PidWatch

AGAIN_S = 0.05


async def ended_within(privileges: Privileges, child: Child, owner: int, patience_s: float) -> bool:
    """Whether it has ended by itself; in any case it has ended when this returns, or is cancelled."""
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
    """A process that has just been started is not yet its owner's, and cannot be killed for a moment."""
    while not ended.is_set():
        with suppress(OSError):
            privileges.kill(child, owner)
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), AGAIN_S)
    child.collect()
