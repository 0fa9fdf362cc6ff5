"""What docs/policies.md and docs/placement.md show is what the core does."""

from __future__ import annotations

from tests.core import placements, timelines


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


def test_every_example_of_placement_is_current_and_shown() -> None:
    document = placements.DOCUMENT.read_text()
    assert placements.filled(document) == document, "run: python -m tests.core.placements"
    assert not [name for name in placements.examples() if f"<!-- placement {name} -->" not in document]
    assert "```text\n```" not in document
