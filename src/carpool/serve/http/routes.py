"""Paths that the endpoint serves besides those of the Open Inference Protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class EndpointRoute:
    """A path.  ``counted``: the server answers such a request before it stops, and takes none while it stops."""

    method: str  # "*": any
    path: str
    handler: Handler
    counted: bool = True


class RouteGroup(Protocol):
    """Paths of one kind, with errors in a form of their own."""

    prefixes: tuple[str, ...]  # of all its paths

    def routes(self) -> Sequence[EndpointRoute]:
        """Return the paths."""

    def admits(self, request: web.Request) -> bool:
        """Whether a client without the server's token may ask for this path."""

    def failed(self, status: int, kind: str, text: str) -> web.Response:
        """Return the answer to a failed request.  ``kind``: a stable word for the error."""
