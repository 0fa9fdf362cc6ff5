"""Metrics of one process, in both formats."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import Counter

from carpool.protocol.metrics import new_registry, page_of

PROGRAM = """
from prometheus_client import Counter
from carpool.protocol.metrics import new_registry, page_of
registry = new_registry()
Counter("carpool_tries", "Tries.", ("how",), registry=registry).labels("well").inc(3)
print(page_of(registry, "")[0].decode())
"""


def test_counts_lie_in_no_files(tmp_path: Path) -> None:
    """Programs with several processes have such a directory, and a daemon that is started beside them sees it."""
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "missing")}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert 'carpool_tries_total{how="well"} 3.0' in done.stdout, done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("accept", "media", "end"),
    [
        ("", "text/plain", "carpool_tries_total 0.0\n"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text", "# EOF\n"),
        ("text/html, nonsense;;;", "text/plain", "carpool_tries_total 0.0\n"),
    ],
)
def test_a_reader_gets_the_format_that_it_prefers(accept: str, media: str, end: str) -> None:
    registry = new_registry()
    Counter("carpool_tries", "Tries.", registry=registry)
    page, found = page_of(registry, accept)
    assert found.startswith(media) and page.decode().endswith(end)
