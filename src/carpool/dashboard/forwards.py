"""The requests of the daemon's API that the page may use; all others are answered with 404."""

from __future__ import annotations

import re
from typing import NamedTuple

from aiohttp import ClientError, ClientResponse, web
from multidict import MultiDict

from carpool.dashboard.guard import error_answer
from carpool.dashboard.upstream import CONNECTIONS, TIMEOUT_S, DaemonGone, Upstream
from carpool.protocol.api import LOG_OFFSET_HEADER

PREFIX = "/api/daemon"
JOB = r"/v1/jobs/[0-9]{1,19}"
DEVICE = r"/v1/devices/[A-Za-z0-9._-]{1,100}"
QUERY = re.compile(r"[A-Za-z0-9_.,=&%+-]*")
#: Most logs that are followed at once; the other connections to the daemon are for all other requests.
MOST_STREAMS = CONNECTIONS - 8
PASSED_ON = ("Content-Type", LOG_OFFSET_HEADER)


class Forward(NamedTuple):
    """``query``: names of allowed parameters; ``streams``: the answer may go on for as long as a job runs."""

    method: str
    path: str
    query: frozenset[str] = frozenset()
    streams: bool = False
    needs: frozenset[str] = frozenset()  # names in ``query`` that are required


FORWARDS = (
    Forward("GET", "/v1/version"),
    Forward("GET", "/v1/jobs", frozenset(("phase", "limit", "before", "array"))),
    Forward("GET", JOB),
    Forward("GET", f"{JOB}/placement"),
    Forward("GET", f"{JOB}/notices"),
    Forward("GET", f"{JOB}/logs", frozenset(("follow", "offset", "attempt")), streams=True),
    *(Forward("POST", f"{JOB}/{action}") for action in ("cancel", "hold", "release", "pause", "resume", "requeue")),
    Forward("PATCH", JOB),
    Forward("GET", "/v1/devices"),
    Forward("GET", f"{DEVICE}/telemetry", frozenset(("since", "step"))),
    Forward("GET", "/v1/models"),
    Forward("GET", "/v1/engines"),
    Forward("POST", "/v1/engines/[A-Za-z0-9._-]{1,100}/(start|stop|sleep)", frozenset(("owner",))),
    Forward("GET", "/v1/limits", frozenset(("user",))),
    Forward("GET", "/v1/policy"),
    Forward("PUT", "/v1/policy"),
    Forward("GET", "/v1/turns", frozenset(("since", "until", "bins", "device"))),
    Forward("GET", "/v1/usage", frozenset(("since", "until"))),
    Forward("GET", "/v1/events", frozenset(("since", "before", "limit")), needs=frozenset(("limit",))),
)


def find_forward(method: str, raw_path: str, query: str) -> Forward | None:
    """Return the forward for a request, or None.  The path is matched as sent: decoding could change its meaning."""
    path = raw_path.removeprefix(PREFIX)
    names = {pair.partition("=")[0] for pair in query.split("&") if pair}
    for one in FORWARDS:
        if one.method == method and re.fullmatch(one.path, path):
            return one if QUERY.fullmatch(query) and one.needs <= names <= one.query else None
    return None


class Forwarder:
    """Asks the daemon for the page."""

    def __init__(self, daemon: Upstream) -> None:
        self._daemon = daemon
        self._streams = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Return the daemon's own answer, errors included."""
        raw_path, _, query = request.raw_path.partition("?")
        forward = find_forward(request.method, raw_path, query)
        if forward is None:
            return error_answer(404, "not_forwarded", "the page does not pass this request on to the daemon")
        target = raw_path.removeprefix(PREFIX) + (f"?{query}" if query else "")
        body = await request.read() if request.method in ("PUT", "PATCH") else None
        if forward.streams and self._streams >= MOST_STREAMS:
            return error_answer(429, "too_many_logs", f"{MOST_STREAMS} logs are open already", "close some pages")
        self._streams += forward.streams
        try:
            return await self._passed_on(request, forward, target, body)
        except DaemonGone as error:
            return error_answer(502, "daemon_gone", str(error), "carpool up starts one")
        finally:
            self._streams -= forward.streams

    async def _passed_on(
        self, request: web.Request, forward: Forward, target: str, body: bytes | None
    ) -> web.StreamResponse:
        timeout_s = None if forward.streams else TIMEOUT_S
        async with self._daemon.answer(forward.method, target, body, timeout_s) as answer:
            headers = MultiDict((name, answer.headers[name]) for name in PASSED_ON if name in answer.headers)
            response = web.StreamResponse(status=answer.status, headers=headers)
            await response.prepare(request)
            await _copy(request, answer, response)
        return response


async def _copy(request: web.Request, answer: ClientResponse, response: web.StreamResponse) -> None:
    """Copy an answer as fast as the page takes it.  An answer that breaks off must not look complete."""
    try:
        async for piece in answer.content.iter_any():
            await response.write(piece)
        await response.write_eof()
    except (ClientError, TimeoutError):
        if request.transport is not None:
            request.transport.abort()
