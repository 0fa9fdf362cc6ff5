"""Who may use the endpoint: anybody on this host by default, everywhere else whoever has the token."""

from __future__ import annotations

import hmac
import ipaddress
import stat
from pathlib import Path

from carpool.serve.oip.errors import StartError

SHORTEST_TOKEN = 16


def read_token(path: Path) -> str:
    """The token in a file that only its owner may read.  Raises StartError."""
    try:
        mode, token = path.stat().st_mode, path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"cannot read the token in {path}: {error}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise StartError(f"others may read or write the token in {path}: chmod 600 {path}")
    if len(token) < SHORTEST_TOKEN or not token.isprintable() or " " in token:
        raise StartError(
            f"the token in {path} needs {SHORTEST_TOKEN} letters or more, without spaces: openssl rand -hex 32"
        )
    return token


def check_address(host: str, token: str | None) -> None:
    """Raises StartError for an address that others reach, without a token."""
    if token is None and not _is_loopback(host):
        raise StartError(f"{host} can be reached from elsewhere, so a token is needed: --token-file FILE")


def authorized(header: str | None, token: str) -> bool:
    """Whether the header `Authorization` holds the token; takes as long whatever part of it is right."""
    scheme, _, given = (header or "").partition(" ")
    return (
        hmac.compare_digest(given.strip().encode(errors="surrogateescape"), token.encode())
        and scheme.lower() == "bearer"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
