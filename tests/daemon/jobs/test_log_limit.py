"""The limit `job_log`, with real jobs: a job that writes more goes on, and its log can be read all the time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from carpool.protocol.client import DaemonClient
from tests.daemon.daemon_harness import Daemon

LIMIT = 64 << 10
#: Writes much, waits until the shim has deleted some of it, and writes on.
CHATTY = """
import json, os, time
for number in range(20_000):
    print(f"line {number:06}")
while os.fstat(1).st_blocks * 512 > 128 << 10:
    time.sleep(0.05)
for number in range(20_000, 40_000):
    print(f"line {number:06}")
print(json.dumps({"size": os.fstat(1).st_size}))
"""


def test_a_job_that_writes_more_than_its_log_may_have(make_daemon: Callable[..., Daemon], home: Path) -> None:
    home.mkdir()
    (home / "limits.toml").write_text('job_log = "64KiB"\n')
    daemon = make_daemon().started()
    job = daemon.python(CHATTY)
    followed = list(daemon.lines(job))
    assert daemon.wait(job)["outcome"] == "succeeded"
    size = json.loads(followed[-1])["size"] + len(followed[-1]) + 1
    log = home / "jobs" / str(job) / "log"
    assert log.stat().st_size == size and log.stat().st_blocks * 512 <= LIMIT + 4096
    mark, *lines = daemon.output(job).splitlines()
    assert mark.startswith("[carpool: the first ") and lines[-1] == followed[-1] and lines[-2] == "line 039999"
    assert [line for line in followed if "\0" in line] == []
    with DaemonClient(home) as client:
        past, end = client.past_log(job)
        assert end == size and past == daemon.output(job).encode()
        assert b"".join(client.logs(job, offset=end)) == b""
