"""What becomes of jobs that fail, or only look as if they did: the real command, the real daemon, plain programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.real import DEVICE, SHORT_PAUSE, daemon_pid, kill_and_wait, limited, stopped_afterwards

MESSAGE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
#: Programs that speak of memory, or fail for another reason; none of them is to be started twice.
HANDLES = "try:\n    bytes(1 << 62)\nexcept MemoryError as error:\n    print('OOM', error, 'a smaller batch')\n"
PROGRAMS = {
    "wrong.py": ("print('BLOOM'\n", "failed", 1),
    "healthy.py": (f"print('loading BLOOM', 'OOM', 'out of memory', {MESSAGE!r}, sep='\\n')\n", "succeeded", 0),
    "handles.py": (HANDLES, "succeeded", 0),
    "unlucky.py": (f"print('OOM'); print({MESSAGE!r}, flush=True)\nraise ValueError('out of memory')\n", "failed", 1),
}


@pytest.fixture
def server(carpool: Cli, home: Path) -> Iterator[Path]:
    with stopped_afterwards(carpool, home):
        limited(home, SHORT_PAUSE)
        carpool.ok("up", "--device", DEVICE, "--device", DEVICE)
        yield home


def starts(cli: Cli) -> Counter[int]:
    events = map(json.loads, cli.ok("events", "--json", "--after-seq", "0").splitlines())
    return Counter(event["job"] for event in events if event["kind"] == "StartJob")


def test_only_what_ran_out_of_memory_is_started_again(server: Path, carpool: Cli, tmp_path: Path) -> None:
    """After CARMA's manager, which takes any failure, and any log with these three letters, for one of memory."""
    for name, (text, *_) in PROGRAMS.items():
        (tmp_path / name).write_text(text)
    jobs = {name: carpool.submit(name, cwd=tmp_path) for name in PROGRAMS}
    carpool("wait", *jobs.values())
    listed = {str(job["id"]): job for job in json.loads(carpool.ok("ls", "--all", "--json"))["jobs"]}
    for name, (_, outcome, code) in PROGRAMS.items():
        info = listed[jobs[name]]
        assert (info["outcome"], info["exit_code"], info["attempt"], info["attempts"]) == (outcome, code, 1, [])
    assert "SyntaxError" in carpool.ok("logs", jobs["wrong.py"])
    kill_and_wait(daemon_pid(server))
    carpool.ok("up", "--device", DEVICE, "--device", DEVICE)  # beside four logs that say so
    assert carpool("wait", carpool.submit("true")).returncode == 0
    assert starts(carpool) == Counter(range(1, len(PROGRAMS) + 2))


def test_retries_are_made_as_often_as_was_asked_and_each_log_stays(server: Path, carpool: Cli, tmp_path: Path) -> None:
    script = "echo start >> starts; echo attempt $(wc -l < starts); exit 3"
    job = carpool.submit("--retries", "2", "--", "sh", "-c", script, cwd=tmp_path)
    assert carpool("wait", job).returncode == 3
    assert (tmp_path / "starts").read_text() == "start\n" * 3
    for attempt in ("1", "2", "3"):
        assert carpool.ok("logs", job, "--attempt", attempt) == f"attempt {attempt}\n"
    assert carpool.ok("logs", job) == "attempt 3\n"
    shown = carpool.ok("show", job)
    assert "attempt 3: exited with code 3; attempt 1 on host0: exited with code 3; attempt 2 on host0" in shown
    assert "the latest is 3" in carpool.fails(4, "logs", job, "--attempt", "4")
