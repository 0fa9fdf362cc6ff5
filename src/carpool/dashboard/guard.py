"""Checks of every request: from a page of this server, in a browser that follows the rules, and with a token.

A page of another site can send requests to 127.0.0.1, and read the answers by a name that points there: browsers say
in ``Host`` which name was asked, and in ``Origin`` whose page asks.  Cookies would go to every port of the host, those
of other users too; so there are none, and the token is in a header that only a script of this page sets.

Answers of the page's server: JSON, errors in the form of the daemon's, and the files of the page.
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
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


TOKEN_HEADER = "Carpool-Token"
HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(?::([0-9]{1,5}))?", re.ASCII | re.IGNORECASE)
#: The page loads everything from this server, and sends nothing elsewhere.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
OPEN_PATHS = ("/", "/api/session", "/ws")  # paths that need no token in a header
log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Guard:
    """``port``: the port of this server; None: any port, because ``ssh -L`` chooses it."""

    def __init__(self, links: Links, port: int | None) -> None:
        self._links, self._port = links, port

    def refusal(self, request: web.Request) -> web.Response | None:
        """Return the answer to a request that is not from this page; None: the request may be carried out."""
        hosts, origins = request.headers.getall("Host", []), request.headers.getall("Origin", [])
        if len(hosts) != 1 or not self._ours(hosts[0]):
            hint = "open the address that `carpool dashboard` has printed"
            return error_answer(403, "wrong_host", "the header Host names another server", hint)
        if any(origin.lower() != f"http://{hosts[0]}".lower() for origin in origins):
            return error_answer(403, "wrong_origin", "the request comes from a page of another site", "close that page")
        if self.needs_token(request.path) and not self._links.knows(request.headers.get(TOKEN_HEADER, "")):
            hint = "press Enter in the terminal where `carpool dashboard` runs, and follow the new link"
            return error_answer(401, "no_token", "this page has no valid token", hint)
        return None

    def _ours(self, host: str) -> bool:
        found = HOST.fullmatch(host)
        return found is not None and self._port in (None, int(found[2] or 80))

    def needs_token(self, path: str) -> bool:
        """Whether a request for ``path`` has to show a token in its header."""
        return not (path in OPEN_PATHS or path.startswith("/static/"))


async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Handle a request; give aiohttp's own refusals, as for an unknown path, the form of the other errors."""
    try:
        return await handler(request)
    except web.HTTPRequestEntityTooLarge:
        return error_answer(413, "too_large", "the request is too large", "at most 1 MiB")
    except web.HTTPException as error:
        return error_answer(error.status, "refused", f"{request.method} here: {error.reason}")
    except Exception as error:  # every request is answered
        log.exception("%s %s failed", request.method, request.path)
        return error_answer(500, "internal", f"internal error of the page's server: {error!r}", "see its terminal")


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers to every answer, errors included."""
    response.headers.update(HEADERS)
    kept = "no-cache" if request.path == "/" or request.path.startswith("/static/") else "no-store"
    response.headers.setdefault("Cache-Control", kept)


LINK_S = 600.0
MOST_LINKS = 16
MOST_TOKENS = 256


class Links:
    """One-time links, and the tokens that they are exchanged for.  Both are lost with the process."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._links: OrderedDict[str, float] = OrderedDict()
        self._tokens: OrderedDict[str, None] = OrderedDict()

    def new(self) -> str:
        """Return the secret part of a link, valid for ten minutes.  Of many unused links the oldest is forgotten."""
        link = secrets.token_urlsafe(32)
        self._links[link] = self._now_s() + LINK_S
        while len(self._links) > MOST_LINKS:
            self._links.popitem(last=False)
        return link

    def exchange(self, link: str) -> str | None:
        """Return a token for an unused link; None for any other link."""
        known = next((each for each in self._links if _same(each, link)), None)
        if known is None or self._links.pop(known) < self._now_s():
            return None
        token = secrets.token_urlsafe(32)
        self._tokens[token] = None
        while len(self._tokens) > MOST_TOKENS:
            self._tokens.popitem(last=False)
        return token

    def unused(self, link: str) -> bool:
        """Whether the link can still be followed."""
        return self._links.get(link, 0.0) > self._now_s()

    def knows(self, token: str) -> bool:
        """Whether the token comes from a link of this process; takes the same time whichever part of it is right."""
        return sum(_same(each, token) for each in self._tokens) > 0


def _same(known: str, given: str) -> bool:
    return hmac.compare_digest(known.encode(), given.encode(errors="surrogateescape"))
