"""Answers of the page's server: JSON, errors in the form of the daemon's, and the files of the page."""

from __future__ import annotations

from pathlib import Path

from aiohttp import web

from carpool.protocol.api import ErrorBody, ErrorInfo
from carpool.protocol.http_connections import json_response

FOLDER = Path(__file__).parent / "static"
MEDIA = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}


def error_answer(status: int, code: str, message: str, hint: str = "") -> web.Response:
    """Return an answer with an `ErrorBody`."""
    return json_response(ErrorBody(ErrorInfo(code, message, hint)), status)


class StaticFiles:
    """The files of known kinds, by their paths below the folder.

    They are read once, when the server starts, so that no path of a request reaches the disk.
    """

    def __init__(self) -> None:
        paths = (path for path in FOLDER.rglob("*") if path.suffix in MEDIA)
        self._files = {path.relative_to(FOLDER).as_posix(): (path.read_bytes(), MEDIA[path.suffix]) for path in paths}

    async def index(self, request: web.Request) -> web.Response:
        """Answer with the page."""
        return self._answer("index.html")

    async def file(self, request: web.Request) -> web.Response:
        """Answer with a file that the page loads."""
        return self._answer(request.match_info["path"])

    def _answer(self, name: str) -> web.Response:
        if name not in self._files:
            return error_answer(404, "no_file", "the page has no such file")
        body, media = self._files[name]
        return web.Response(body=body, content_type=media, charset="utf-8")
