"""Access to the page: a browser that has followed a link of this process, which works once."""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

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
