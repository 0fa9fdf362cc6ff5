"""The order in which every driver lets the core handle events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from carpool.core.events import Event


class Inbox:
    """Handles events one at a time: one posted meanwhile comes after the present one and all that it leads to."""

    def __init__(self, handle: Callable[[Event], None]) -> None:
        self._handle = handle
        self._waiting: deque[Event] = deque()
        self._busy = False

    def post(self, event: Event) -> bool:
        """Handle ``event`` now, and all that are posted meanwhile; False if it is left to a `post` under way."""
        self._waiting.append(event)
        if self._busy:
            return False
        self._busy = True
        try:
            while self._waiting:
                self._handle(self._waiting.popleft())
        finally:
            self._busy = False
        return True
