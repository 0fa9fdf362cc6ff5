"""Large bodies of requests: of one user only a few are read at a time, the others wait where they are."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext

from carpool.daemon.system.persons import person_of

SMALL = 64 << 10  # bytes: such bodies never wait
MOST_AT_ONCE = 4


class LargeBodies:
    """Until somebody reads it, a body takes no memory of the daemon's but a buffer."""

    def __init__(self) -> None:
        self._of: dict[int, asyncio.Semaphore] = {}

    def reading(self, uid: int, length: int | None) -> AbstractAsyncContextManager[None]:
        """While a body of this user is read and decoded.  ``length`` in bytes; None: nobody knows."""
        if length is not None and length <= SMALL:
            return nullcontext()
        return self._of.setdefault(person_of(uid), asyncio.Semaphore(MOST_AT_ONCE))
