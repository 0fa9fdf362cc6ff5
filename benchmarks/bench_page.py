"""The page in a browser: how soon 10,000 jobs are there, and what a frame of the densest timeline takes.

The figures are those that tests of the page record (`tests/dashboard/browser`): chromium without a GPU, so drawing
takes processor time; a stand-in for the server's WebSocket sends the 10,000 jobs.  In a third test a real daemon has
10,000 ended jobs in its journal, and a million rows of events.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.figures import Figure, Skipped, median_figure
from tools.demo.jobs import ROOT

TESTS = (
    "test_many.py::test_ten_thousand_jobs",
    "test_timeline_view.py::test_a_frame_at_its_densest",
    "test_long_used.py::test_a_million_rows",
)
#: Name of a record, what it is, its unit, and the target.
RECORDS = (
    ("first_paint_ms", "10,000 jobs: first paint", "ms", 1000.0),
    ("first_rows_ms", "10,000 jobs: first rows", "ms", None),
    ("state_bytes", "10,000 jobs: the message with all of them", "B", None),
    ("start_ms", "10,000 ended jobs, 1,000,000 rows of events: start of the daemon", "ms", None),
    ("million_paint_ms", "10,000 ended jobs, 1,000,000 rows of events: first paint", "ms", 1000.0),
    ("million_rows_ms", "10,000 ended jobs, 1,000,000 rows of events: first rows", "ms", None),
    ("blocks", "densest timeline: blocks", "1", None),
    ("draw_ms", "densest timeline: drawing a frame", "ms", None),
    ("frame_ms", "densest timeline: from frame to frame", "ms", 33.0),
)


def run(quick: bool) -> list[Figure]:
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(1 if quick else 5):
        for name, value in _records():
            found[name].append(value)
    return [median_figure("page", about, unit, found[name], target=target) for name, about, unit, target in RECORDS]


def _records() -> list[tuple[str, float]]:
    """Of one run of the tests.  Raises CalledProcessError where one fails, Skipped where one is."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        tests = [f"tests/dashboard/browser/{test}" for test in TESTS]
        command = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={report}", "-o", "junit_family=xunit1", *tests]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        found = [
            (each.attrib["name"], float(each.attrib["value"])) for each in ElementTree.parse(report).iter("property")
        ]
    if {name for name, *_ in RECORDS} - {name for name, _ in found}:
        raise Skipped("the tests of the page do not run here: they need chromium")
    return found
