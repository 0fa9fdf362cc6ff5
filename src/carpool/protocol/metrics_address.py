"""The TCP address at which a daemon serves its metrics."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple


class MetricsAddress(NamedTuple):
    """An IP address of this machine, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def metrics_address(text: str) -> MetricsAddress:
    """Parse ADDRESS:PORT.  Raises ValueError.

    >>> metrics_address("127.0.0.1:9467")
    MetricsAddress(host='127.0.0.1', port=9467)
    >>> str(metrics_address("[::1]:9467"))
    '[::1]:9467'
    """
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{text!r} is no address with a port, as in 127.0.0.1:9467")
    try:
        return MetricsAddress(str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))), int(port))
    except ValueError:
        raise ValueError(f"{host!r} is no IP address; for this machine alone: 127.0.0.1:{port}") from None
