"""Large request bodies: only a few bodies of one user are read at a time; the others wait unread."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext

from carpool.daemon.system.persons import person_of

SMALL = 64 << 10  # bytes: such bodies never wait
MOST_AT_ONCE = 4


class LargeBodies:
    """Limits the large bodies of each user that are read at once; an unread body takes only a buffer of memory."""

    def __init__(self) -> None:
        self._of: dict[int, asyncio.Semaphore] = {}

    def reading(self, uid: int, length: int | None) -> AbstractAsyncContextManager[None]:
        """Return the context for reading and decoding a body of this user.  ``length``: bytes; None: unknown."""
        if length is not None and length <= SMALL:
            return nullcontext()
        return self._of.setdefault(person_of(uid), asyncio.Semaphore(MOST_AT_ONCE))
