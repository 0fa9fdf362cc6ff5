"""Metrics of one process: the TCP address where a daemon serves them, and their page for Prometheus."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry  # takes long to load


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
        raise ValueError(f"{text!r} is not an address with a port, as in 127.0.0.1:9467")
    try:
        return MetricsAddress(str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))), int(port))
    except ValueError:
        raise ValueError(f"{host!r} is not an IP address; for this machine alone: 127.0.0.1:{port}") from None


def new_registry() -> CollectorRegistry:
    """Return a registry that counts in memory, whatever PROMETHEUS_MULTIPROC_DIR says, without times of creation."""
    from prometheus_client import CollectorRegistry, disable_created_metrics, values

    disable_created_metrics()  # type: ignore[no-untyped-call]
    values.ValueClass = values.MutexValue
    return CollectorRegistry()


def page_of(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Return the text and its media type, in the format that the reader prefers (its header ``Accept``)."""
    from prometheus_client.exposition import choose_encoder

    encode, media = choose_encoder(accept)
    return encode(registry), media
