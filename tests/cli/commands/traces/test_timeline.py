"""`carpool timeline`: real jobs and their profiles on one time axis, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.real import stopped_afterwards
from tests.cli.standin import StandIn, device, device_list
from tests.timeline.recorded import ChromeSlice, chrome_slices

#: Trains for forty iterations, each of which its profile names; a tensor makes the two jobs too large together.
SCRIPT = """
import sys
import torch
from torch.profiler import ProfilerActivity, profile, record_function

torch.zeros(12 << 20)
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with profile(activities=[ProfilerActivity.CPU]) as profiled:
    for _ in range(40):
        with record_function("iteration"):
            model(torch.ones(64, 256)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
profiled.export_chrome_trace(sys.argv[1])
"""


def slices(path: Path) -> list[ChromeSlice]:
    """Of a file in Chrome's format."""
    return chrome_slices(json.loads(path.read_text()))


def meets(one: ChromeSlice, other: ChromeSlice) -> bool:
    return one.begin <= other.end and other.begin <= one.end


def test_turns_and_profiles_of_two_jobs_lie_on_one_axis(carpool: Cli, home: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    quick = ["--set", "quantum_us=5ms", "--set", "max_switch_share_ppm=1000000"]
    with stopped_afterwards(carpool, home):
        carpool.ok("up", "--device", "host:192MiB", "--threads", "1", *quick)
        for name in ("one", "two"):
            command = ["--name", name, "--", sys.executable, "train.py", f"{name}.json"]
            carpool.ok("submit", *command, cwd=tmp_path)
        carpool.ok("wait", "--all")
        profiles = ["--with", "one.json", "--with", "two.json"]
        said = json.loads(carpool.ok("timeline", "-o", "all.json", *profiles, "--json", cwd=tmp_path))
        carpool.ok("timeline", "-o", "job.json", "--job", "two", cwd=tmp_path)
        assert "slices in" in carpool.ok("timeline", "-o", "device.json", "--device", "host0", cwd=tmp_path)
        assert "no events of that time" in carpool.ok("timeline", "-o", "none.json", "--until", "1d", cwd=tmp_path)
    found = slices(tmp_path / "all.json")
    assert said["slices"] == len(found)
    for number, name in enumerate(("one", "two"), 1):
        turns = [each for each in found if each.track.startswith("lane ") and each.name == f"job {number} {name}"]
        iterations = [each for each in found if each.group.startswith(f"{name}.json") and each.name == "iteration"]
        assert len(iterations) == 40
        assert all(turns[0].begin <= each.begin and each.end <= turns[-1].end for each in iterations)
        # Some may lie before their turn: the daemon hears of a turn that a job hands to another one a moment later.
        assert sum(any(meets(each, turn) for turn in turns) for each in iterations) > len(iterations) / 2
        states = [each.name for each in found if each.group == f"job {number} {name}" and each.track == "state"]
        assert states[:2] == ["queued", "starts"] and "computes" in states
    assert {each.group for each in slices(tmp_path / "job.json")} == {"job 2 two", "host0"}
    assert {each.group for each in slices(tmp_path / "device.json")} == {"host0", "job 1 one", "job 2 two"}
    assert json.loads((tmp_path / "none.json").read_text()) == {"traceEvents": []}
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json"] * 6 + [".py"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["-o", "out.perfetto-trace"], "has to end in .json, the format that Perfetto and chrome://tracing open"),
        (["-o", "missing/out.json"], "missing/out.json cannot be written: No such file or directory"),
        (["-o", "out.json", "--with", "bad.json"], "is not a trace of torch.profiler"),
        (["-o", "out.json", "--device", "gpu7"], "there is no device 'gpu7'"),
        (["-o", "out.json", "--since", "soon"], "write a time such as 14:05"),
        ([], "Missing option '--output'"),
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_nothing(
    standin: StandIn, carpool: Cli, tmp_path: Path, options: list[str], why: str
) -> None:
    (tmp_path / "bad.json").write_text("{}")
    standin.reactions["GET /v1/devices"] = device_list(device([]))
    result = carpool("timeline", *options, cwd=tmp_path)
    assert result.returncode != 0
    assert why in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"]
