"""The requests that an endpoint without a token answers: those of programs on this host, not of other sites' pages.

A page in a browser on this host can send requests to 127.0.0.1, and through a name of its own that resolves there it
can also read the answers.  Browsers state in `Host` which name was asked, and in `Origin` whose page asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from carpool.serve.http.auth import is_loopback
from carpool.serve.oip.errors import WrongOrigin


def check_origin(hosts: Sequence[str], origins: Sequence[str]) -> None:
    """Check all headers `Host` and `Origin` of a request.  Raises WrongOrigin."""
    hint = "without a token only this machine's own names are served: ask 127.0.0.1, or use --token-file"
    if not hosts or not all(_names_loopback(f"//{host}") for host in hosts):
        raise WrongOrigin(f"the header Host is {', '.join(map(repr, hosts)) or 'missing'}; {hint}")
    if not all(map(_names_loopback, origins)):
        raise WrongOrigin(f"the header Origin is {', '.join(map(repr, origins))}; {hint}")


def _names_loopback(url: str) -> bool:
    try:
        name = urlsplit(url).hostname
    except ValueError:
        return False
    return name is not None and is_loopback(name)
