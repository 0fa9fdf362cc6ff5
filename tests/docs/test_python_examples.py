"""The Python listings that the docs show for programs run as they stand, with the imports that they name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
_LISTING = re.compile(r"^## From Python\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_simulator_is_called_as_its_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    (listing,) = _LISTING.findall((DOCS / "simulator.md").read_text())
    exec(compile(listing, "docs/simulator.md", "exec"), {})
    assert float(capsys.readouterr().out) > 0
