"""What `carpool top` takes of a core: processor time of its process at one frame a second, beside 200 jobs.

A real daemon, scripted jobs that take ten turns a second, as many of them running as the limit allows and the rest
queued, and a pseudo-terminal of 120 by 50.  The start of the interpreter counts as well.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

from benchmarks.figures import Figure, median_figure
from benchmarks.jobs import argv, environment, submit
from carpool.protocol.client import DaemonClient
from demo.session import Session

JOBS, RUNNING = 200, 24
COLUMNS, LINES = 120, 50
TARGET = 0.05
DEVICES = ["host:256MiB", "host:256MiB"]


def run(quick: bool) -> list[Figure]:
    seconds, runs = (10.0, 1) if quick else (60.0, 3)
    with tempfile.TemporaryDirectory() as home:
        state = Path(home) / "state"
        with Session(state, DEVICES, "fair", {"user_running": RUNNING}) as client:
            _submitted(client)
            seen = [_watched(state, seconds) for _ in range(runs)]
    detail = {"jobs": JOBS, "running": RUNNING, "seconds": seconds, "columns": COLUMNS, "lines": LINES}
    return [
        median_figure("top", f"carpool top, 1 Hz, {JOBS} jobs, of a core", "ratio", [cpu for cpu, _ in seen],
                      target=TARGET, detail=detail),
        median_figure("top", "bytes that it writes to the terminal", "B/s", [size for _, size in seen]),
    ]  # fmt: skip


def _submitted(client: DaemonClient) -> None:
    """Waits until as many run as may."""
    for number in range(JOBS):
        submit(client, argv("scripted.py"), name=f"train-{number:03}", iterations=100_000)
    while sum(job.iterations > 0 for job in client.jobs(("running",))) < RUNNING:
        time.sleep(0.5)


def _watched(home: Path, seconds: float) -> tuple[float, float]:
    """Processor time per second of a whole run of `carpool top`, and bytes per second."""
    pid, terminal = pty.fork()
    if pid == 0:
        env = environment() | {"CARPOOL_HOME": str(home), "TERM": "xterm-256color"}
        os.execve(sys.executable, [sys.executable, "-m", "carpool.cli", "top"], env)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    begin = time.monotonic()
    written = _read_until(terminal, begin + seconds)
    os.write(terminal, b"q")
    _, status, usage = os.wait4(pid, 0)
    os.close(terminal)
    if status != 0:
        raise RuntimeError(f"carpool top ended with status {status}")
    lasted = time.monotonic() - begin
    return (usage.ru_utime + usage.ru_stime) / lasted, written / lasted


def _read_until(terminal: int, end: float) -> int:
    """How many bytes came."""
    count = 0
    while (left := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            count += len(os.read(terminal, 1 << 16))
    return count
