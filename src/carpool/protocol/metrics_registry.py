"""Metrics of one process, and their page for Prometheus: for the daemon and for the front of models."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, disable_created_metrics, values
from prometheus_client.exposition import choose_encoder


def new_registry() -> CollectorRegistry:
    """Return a registry that counts in memory, whatever PROMETHEUS_MULTIPROC_DIR says, without times of creation."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    values.ValueClass = values.MutexValue
    return CollectorRegistry()


def page_of(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Return the text and its media type, in the format that the reader prefers (its header ``Accept``)."""
    encode, media = choose_encoder(accept)
    return encode(registry), media
