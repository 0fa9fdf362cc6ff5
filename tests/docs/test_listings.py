"""Files that a page shows are those of the repository.

A listing under ``<!-- file NAME: PATH -->`` is the file at PATH; ``python -m tests.docs.test_listings`` writes it anew.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "docs/write-a-policy.md",)
LISTING = re.compile(r"(<!-- file [\w.]+: (\S+) -->\n```python\n).*?(```\n)", re.DOTALL)


def renewed(page: str) -> str:
    """The page with every listing as the file is now."""
    return LISTING.sub(lambda match: match[1] + (ROOT / match[2]).read_text() + match[3], page)


def test_listings_are_current() -> None:
    for page in PAGES:
        assert LISTING.search(page.read_text())
        assert renewed(page.read_text()) == page.read_text(), "run: python -m tests.docs.test_listings"


def test_the_policy_is_as_short_as_promised() -> None:
    assert len((ROOT / "docs/examples/policies/aging.py").read_text().splitlines()) <= 30


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(renewed(path.read_text()))


DOCS = Path(__file__).resolve().parents[2] / "docs"
_LISTING = re.compile(r"^## From Python\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_simulator_is_called_as_its_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    (listing,) = _LISTING.findall((DOCS / "simulator.md").read_text())
    exec(compile(listing, "docs/simulator.md", "exec"), {})
    assert float(capsys.readouterr().out) > 0
