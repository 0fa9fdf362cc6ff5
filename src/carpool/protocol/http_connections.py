"""Connections to an HTTP server that any process may open: an unfinished request does not keep other clients out.

For the daemon and the page's server, which share the form of their answers with the endpoint of models.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
from aiohttp import StreamReader, web

#: Time within which the head of a request must arrive.
HEAD_S = 10.0
#: Longest idle time between two requests: a program may compute for long before its next request.
IDLE_S = 3630.0


class TimedConnection(web.RequestHandler):
    """``options``: those of `web.RequestHandler`.  ``entitled``: the other end has a right to be there."""

    entitled = True
    __slots__ = ("_body", "_head_due")

    def __init__(self, server: web.Server, **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **{"keepalive_timeout": IDLE_S, **options})
        self._body: StreamReader | None = None  # body of the request whose head came last
        self._head_due: asyncio.TimerHandle | None = None

    @property
    def between_requests(self) -> bool:
        """Whether the connection waits for a request."""
        return self._body is None or (self._waiter is not None and not self._waiter.done())

    @property
    def needed(self) -> bool:
        """Whether a complete request is being answered, or its answer is being taken."""
        if self.between_requests or self._body is None:
            return False
        return self._body.is_eof() and not self.writing_paused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the head of the first request."""
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Note when the head of a request is complete."""
        super().data_received(data)
        if self._messages:
            self._body = self._messages[-1][1]
            self._cancel_head()
        elif self._head_due is None and self.between_requests:
            self._expect_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop waiting for a head."""
        self._cancel_head()
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close at once: read and send nothing more, even if the peer has not taken everything that was sent."""
        transport = self.transport
        self.force_close()
        if transport is not None:
            transport.abort()

    def _expect_head(self) -> None:
        self._head_due = self._loop.call_later(HEAD_S, self._head_is_late)

    def _cancel_head(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _head_is_late(self) -> None:
        self._head_due = None
        if self.between_requests:
            self.abort()


def make_room(connections: Iterable[web.RequestHandler], most: int) -> bool:
    """Make room for one more connection if there are ``most``: close one, and return whether there is room.

    The oldest without a complete request is closed, else the oldest that is not entitled.  ``connections``: in the
    order in which they came.
    """
    present = [each for each in connections if isinstance(each, TimedConnection) and each.transport is not None]
    if len(present) < most:
        return True
    going = [each for each in present if not (each.needed and each.entitled)]
    if going:
        min(going, key=lambda each: each.needed).abort()
    return bool(going)


def json_response(value: object, status: int = 200) -> web.Response:
    """Return an answer in JSON.  ``value``: anything that msgspec encodes."""
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
