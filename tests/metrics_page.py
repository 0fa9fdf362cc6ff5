"""What a page in the text format of Prometheus says."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def _samples(page: bytes) -> Iterator[Sample]:
    for family in text_string_to_metric_families(page.decode()):
        yield from family.samples


def values(page: bytes) -> dict[tuple[str, ...], float]:
    """By the name and the values of the labels, in the order of the labels' names."""
    return {(one.name, *(value for _, value in sorted(one.labels.items()))): one.value for one in _samples(page)}


def total(page: bytes, name: str, **labels: str) -> float:
    """The sum over all series with these labels; 0 if there is none."""
    return sum(one.value for one in _samples(page) if one.name == name and labels.items() <= one.labels.items())
