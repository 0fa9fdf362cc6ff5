"""Waiting for a user's process that works for the daemon, and ending it when it takes too long."""

from __future__ import annotations

import asyncio
from contextlib import suppress

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
