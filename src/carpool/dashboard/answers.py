"""Answers of the page's server: JSON, and errors in the form of the daemon's."""

from __future__ import annotations

import msgspec
from aiohttp import web

from carpool.protocol.api import ErrorBody, ErrorInfo


def json_answer(value: object) -> web.Response:
    """Return an answer 200 with ``value`` as JSON."""
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def error_answer(status: int, code: str, message: str, hint: str = "") -> web.Response:
    """Return an answer with an `ErrorBody`."""
    body = msgspec.json.encode(ErrorBody(ErrorInfo(code, message, hint)))
    return web.Response(status=status, body=body, content_type="application/json")
