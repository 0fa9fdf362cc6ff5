"""What becomes of jobs that fail, or only look as if they did: the real command, the real daemon, plain programs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.cli.conftest import Cli
from tests.cli.real import DEVICE, daemon_pid, kill_and_wait

MESSAGE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
#: Programs that speak of memory, or fail for another reason; none of them is to be started twice.
HANDLES = "try:\n    bytes(1 << 62)\nexcept MemoryError as error:\n    print('OOM', error, 'a smaller batch')\n"
PROGRAMS = {
    "wrong.py": ("print('BLOOM'\n", "failed", 1),
    "healthy.py": (f"print('loading BLOOM', 'OOM', 'out of memory', {MESSAGE!r}, sep='\\n')\n", "succeeded", 0),
    "handles.py": (HANDLES, "succeeded", 0),
    "unlucky.py": (f"print('OOM'); print({MESSAGE!r}, flush=True)\nraise ValueError('out of memory')\n", "failed", 1),
}


def starts(cli: Cli) -> Counter[int]:
    events = map(json.loads, cli.ok("events", "--json", "--after-seq", "0").splitlines())
    return Counter(event["job"] for event in events if event["kind"] == "StartJob")


def test_only_what_ran_out_of_memory_is_started_again(own_daemon: Cli, tmp_path: Path) -> None:
    """After CARMA's manager, which takes any failure, and any log with these three letters, for one of memory."""
    for name, (text, *_) in PROGRAMS.items():
        (tmp_path / name).write_text(text)
    jobs = {name: own_daemon.submit(name, cwd=tmp_path) for name in PROGRAMS}
    own_daemon("wait", *jobs.values())
    listed = {str(job["id"]): job for job in json.loads(own_daemon.ok("ls", "--all", "--json"))["jobs"]}
    for name, (_, outcome, code) in PROGRAMS.items():
        info = listed[jobs[name]]
        assert (info["outcome"], info["exit_code"], info["attempt"], info["attempts"]) == (outcome, code, 1, [])
    assert "SyntaxError" in own_daemon.ok("logs", jobs["wrong.py"])
    kill_and_wait(daemon_pid(own_daemon.home))
    own_daemon.ok("up", "--device", DEVICE)  # beside four logs that say so
    assert own_daemon("wait", own_daemon.submit("true")).returncode == 0
    assert starts(own_daemon) == Counter(range(1, len(PROGRAMS) + 2))


def test_retries_are_made_as_often_as_was_asked_and_each_log_stays(own_daemon: Cli, tmp_path: Path) -> None:
    script = "echo start >> starts; echo attempt $(wc -l < starts); exit 3"
    job = own_daemon.submit("--retries", "2", "--", "sh", "-c", script, cwd=tmp_path)
    assert own_daemon("wait", job).returncode == 3
    assert (tmp_path / "starts").read_text() == "start\n" * 3
    for attempt in ("1", "2", "3"):
        assert own_daemon.ok("logs", job, "--attempt", attempt) == f"attempt {attempt}\n"
    assert own_daemon.ok("logs", job) == "attempt 3\n"
    shown = own_daemon.ok("show", job)
    assert "attempt 3: exited with code 3; attempt 1 on host0: exited with code 3; attempt 2 on host0" in shown
    assert "the latest is 3" in own_daemon.fails(4, "logs", job, "--attempt", "4")
