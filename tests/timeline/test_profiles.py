"""Traces in the form of torch.profiler: `tests/cli/commands/traces/test_timeline.py` has a real one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.timeline.profiles import BadProfile, _nested, _Slice, profile_marks
from carpool.timeline.window import Begin
from tests.timeline.recorded import slices

BASE = 1_700_000_000_000_000_000
EVENTS = [
    {"ph": "M", "name": "thread_name", "pid": 7, "tid": 8, "ts": 0, "args": {"name": "main"}},
    {"ph": "X", "name": "inner", "pid": 7, "tid": 8, "ts": 12.5, "dur": 2, "args": {"rows": 3, "shape": [1]}},
    {"ph": "X", "name": "outer", "pid": 7, "tid": 8, "ts": 10, "dur": 10.25},
    {"ph": "X", "name": "overlaps", "pid": 7, "tid": 8, "ts": 15, "dur": 10},
    {"ph": "X", "name": "elsewhere", "pid": 7, "tid": "stream 3", "ts": "11", "dur": 1},
    {"ph": "f", "name": "arrow", "pid": 7, "tid": 8, "ts": 12},
]


def written(path: Path, **about: Any) -> Path:
    text = json.dumps({"baseTimeNanoseconds": BASE, "traceEvents": EVENTS, **about}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_slices_of_threads_and_streams(name: str, tmp_path: Path) -> None:
    marks = list(profile_marks(written(tmp_path / name)))
    found = {track.name: those for track, those in slices(marks).items()}
    assert found == {
        "main": [(BASE + 12_500, BASE + 14_500, "inner"), (BASE + 10_000, BASE + 20_250, "outer")],
        "main (2)": [(BASE + 15_000, BASE + 25_000, "overlaps")],
        "thread stream 3": [(BASE + 11_000, BASE + 12_000, "elsewhere")],
    }
    (inner,) = (mark for mark in marks if isinstance(mark, Begin) and mark.name == "inner")
    assert inner.arguments == {"rows": 3}
    assert inner.track.group.name == f"{name}: process 7"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20))))
def test_lines_have_all_slices_and_none_overlaps(found: list[tuple[int, int]]) -> None:
    made = sorted(_Slice(begin, -length, str(number)) for number, (begin, length) in enumerate(found))
    lines = _nested(made)
    assert sorted(each for line in lines for each in line) == made
    for line in lines:
        for place, each in enumerate(line):
            for other in line[:place]:
                assert other.end_ns <= each.begin_ns or each.end_ns <= other.end_ns


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not a trace of torch.profiler"),
        ("{}", "not a trace of torch.profiler"),
        ('{"traceEvents": []}', "no baseTimeNanoseconds"),
        ('{"traceEvents": [], "baseTimeNanoseconds": 1}', "no slice"),
    ],
)
def test_other_files_are_refused(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(BadProfile, match=why):
        profile_marks(path)
