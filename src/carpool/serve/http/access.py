"""Access to the endpoint: clients with the token, or, without one, programs on this host.

A page in a browser on this host can send requests to 127.0.0.1, and through a name of its own that resolves there it
can also read the answers.  Browsers state in `Host` which name was asked, and in `Origin` whose page asks: without a
token, both have to name this machine.  A picture or a link has no `Origin`; for those, browsers state in
`Sec-Fetch-Site` that it is another site's.
"""

from __future__ import annotations

import hmac
import ipaddress
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from carpool.serve.oip.errors import StartError, WrongOrigin

SHORTEST_TOKEN = 16
API_KEY = "X-API-Key"  # the header of Anthropic's clients


def read_token(path: Path) -> str:
    """Read the token from a file that only its owner may read.  Raises StartError."""
    return _checked(path, _secrets(path, "token").strip())


def read_keys(path: Path) -> list[str]:
    """Read keys from a file that only its owner may read: one in each line, # before notes.  Raises StartError."""
    lines = (line.strip() for line in _secrets(path, "keys").splitlines())
    return [_checked(path, line) for line in lines if line and not line.startswith("#")]


def _secrets(path: Path, what: str) -> str:
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise StartError(f"others may read or write the {what} in {path}: chmod 600 {path}")
        return path.read_text(encoding="ascii")
    except OSError as error:
        raise StartError(f"cannot read the {what} in {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise StartError(f"cannot read the {what} in {path}: {error}") from None


def _checked(path: Path, token: str) -> str:
    if len(token) < SHORTEST_TOKEN or not token.isprintable() or " " in token:
        raise StartError(
            f"the token in {path} needs {SHORTEST_TOKEN} letters or more, without spaces: openssl rand -hex 32"
        )
    return token


def check_address(host: str, token: str | None) -> None:
    """Check that an address that other machines reach has a token.  Raises StartError."""
    if token is None and not is_loopback(host):
        raise StartError(f"{host} can be reached from elsewhere, so a token is needed: --token-file FILE")


def authorized(headers: Mapping[str, str], token: str) -> bool:
    """Whether headers hold the token, as OpenAI's or Anthropic's clients send it; comparing takes constant time."""
    scheme, _, bearer = headers.get("Authorization", "").partition(" ")
    sent = [bearer if scheme.lower() == "bearer" else "", headers.get(API_KEY, "")]
    return any(hmac.compare_digest(each.strip().encode(errors="surrogateescape"), token.encode()) for each in sent)


def is_loopback(host: str) -> bool:
    """Whether a server at this name or address is reached only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_origin(hosts: Sequence[str], origins: Sequence[str], sites: Sequence[str] = ()) -> None:
    """Check all headers `Host`, `Origin` and `Sec-Fetch-Site` of a request.  Raises WrongOrigin."""
    hint = "without a token only this machine's own names are served: ask 127.0.0.1, or use --token-file"
    if not hosts or not all(_names_loopback(f"//{host}") for host in hosts):
        raise WrongOrigin(f"the header Host is {', '.join(map(repr, hosts)) or 'missing'}; {hint}")
    if not all(map(_names_loopback, origins)):
        raise WrongOrigin(f"the header Origin is {', '.join(map(repr, origins))}; {hint}")
    if "cross-site" in sites:
        raise WrongOrigin(f"a page of another site asks; {hint}")


def _names_loopback(url: str) -> bool:
    try:
        name = urlsplit(url).hostname
    except ValueError:
        return False
    return name is not None and is_loopback(name)
