"""What docs/policies.md shows is what the core does."""

from __future__ import annotations

from tests.core import timelines


def test_every_timeline_listing_and_diagram_is_current() -> None:
    document = timelines.DOCUMENT.read_text()
    assert timelines.filled(document) == document, "run: python -m tests.core.timelines"


def test_every_timeline_is_shown() -> None:
    document = timelines.DOCUMENT.read_text()
    missing = [name for name in timelines.examples() if f"<!-- timeline {name} -->" not in document]
    assert not missing
    assert "```text\n```" not in document


def test_the_own_policy_is_as_short_as_promised() -> None:
    code = (timelines.DOCUMENT.parents[1] / "tests/core/smallest.py").read_text()
    assert len(code.splitlines()) <= 32
