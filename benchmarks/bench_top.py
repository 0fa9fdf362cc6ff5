"""What `carpool top` takes of a core: processor time of its process at one frame a second, beside 200 jobs.

A real daemon, scripted jobs that take ten turns a second, as many of them running as the limit allows and the rest
queued, and a pseudo-terminal of 120 by 50.  As much time is counted as there are frames, because on a busy machine
`carpool top` draws fewer than one a second; the start of the interpreter is in it.
"""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

from benchmarks.figures import Figure, median_figure, rounds_of
from benchmarks.jobs import argv, environment, submit
from carpool.protocol.client import DaemonClient
from carpool.protocol.packets import readable
from tools.demo.session import Session

JOBS, RUNNING = 200, 24
COLUMNS, LINES = 120, 50
TARGET = 0.05
FIRST_LINE = b"\x1b[1H"
SILENT_S = 120
DEVICES = ["host:256MiB", "host:256MiB"]


def run(quick: bool) -> list[Figure]:
    frames, runs = (10, 1) if quick else (60, rounds_of(3))
    with tempfile.TemporaryDirectory() as home:
        state = Path(home) / "state"
        with Session(state, DEVICES, "fair", {"user_running": RUNNING}) as client:
            _submitted(client)
            seen = [_watched(state, frames) for _ in range(runs)]
    detail: dict[str, object] = {"jobs": JOBS, "running": RUNNING, "frames": frames, "columns": COLUMNS, "lines": LINES}
    detail["lasted_s"] = [round(lasted, 1) for _, _, lasted in seen]
    return [
        median_figure("top", f"carpool top, 1 Hz, {JOBS} jobs, of a core", "ratio",
                      [cpu / frames for cpu, _, _ in seen], target=TARGET, detail=detail),
        median_figure("top", "bytes that it writes to the terminal, per frame", "B",
                      [size / frames for _, size, _ in seen]),
    ]  # fmt: skip


def _submitted(client: DaemonClient) -> None:
    """Waits until as many run as may."""
    for number in range(JOBS):
        submit(client, argv("scripted.py"), name=f"train-{number:03}", iterations=100_000)
    while sum(job.iterations > 0 for job in client.jobs(("running",))) < RUNNING:
        time.sleep(0.5)


def _watched(home: Path, frames: int) -> tuple[float, int, float]:
    """Processor time of a whole run of `carpool top` in seconds, bytes that came, and how long it took in seconds."""
    begin = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        env = environment() | {"CARPOOL_HOME": str(home), "TERM": "xterm-256color"}
        os.execve(sys.executable, [sys.executable, "-m", "carpool.cli", "top"], env)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    written = _read(terminal, frames)
    os.write(terminal, b"q")
    _, status, usage = os.wait4(pid, 0)
    os.close(terminal)
    if status != 0:
        raise RuntimeError(f"carpool top ended with status {status}")
    return usage.ru_utime + usage.ru_stime, written, time.monotonic() - begin


def _read(terminal: int, frames: int) -> int:
    """How many bytes came with so many frames.  Each writes the first line, which has the time of day."""
    data = b""
    while data.count(FIRST_LINE) < frames:
        if not readable(terminal, SILENT_S):
            raise RuntimeError(f"carpool top has drawn nothing for {SILENT_S} s")
        data += os.read(terminal, 1 << 16)
    return len(data)
