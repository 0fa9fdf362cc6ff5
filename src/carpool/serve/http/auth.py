"""Access to the endpoint: by default every process on this host, everywhere else only clients with the token."""

from __future__ import annotations

import hmac
import ipaddress
import stat
from pathlib import Path

from carpool.serve.oip.errors import StartError

SHORTEST_TOKEN = 16


def read_token(path: Path) -> str:
    """Read the token from a file that only its owner may read.  Raises StartError."""
    try:
        check_private(path, "the token")
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"cannot read the token in {path}: {error}") from None
    if len(token) < SHORTEST_TOKEN or not token.isprintable() or " " in token:
        raise StartError(
            f"the token in {path} needs {SHORTEST_TOKEN} letters or more, without spaces: openssl rand -hex 32"
        )
    return token


def check_private(path: Path, what: str) -> None:
    """Check a file's permissions.

    Raises StartError if others than its owner may read or write it, OSError if it is missing.
    """
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise StartError(f"others may read or write {what} in {path}: chmod 600 {path}")


def check_address(host: str, token: str | None) -> None:
    """Check that an address that other machines reach has a token.  Raises StartError."""
    if token is None and not is_loopback(host):
        raise StartError(f"{host} can be reached from elsewhere, so a token is needed: --token-file FILE")


def authorized(header: str | None, token: str) -> bool:
    """Whether the header `Authorization` holds the token; the comparison takes constant time."""
    scheme, _, given = (header or "").partition(" ")
    return (
        hmac.compare_digest(given.strip().encode(errors="surrogateescape"), token.encode())
        and scheme.lower() == "bearer"
    )


def is_loopback(host: str) -> bool:
    """Whether a server at this name or address is reached only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
