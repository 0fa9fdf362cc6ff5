"""Jobs that fill their memory, give their turn back, and look what is there when a test lets them go on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.daemon.daemon_harness import Daemon


class FilledJobs:
    """Jobs of ``size`` bytes each, under a daemon with one device."""

    def __init__(self, daemon: Daemon, directory: Path, size: int) -> None:
        self.daemon, self.size = daemon, size
        self._directory = directory
        self._fifos: dict[int, Path] = {}

    def start(
        self,
        value: int,
        *before: str,
        after: tuple[str, ...] = (),
        size: int = 0,
        rests: tuple[str, ...] = ("release",),
    ) -> int:
        """Start a job whose bytes all are ``value``.

        ``rests``: what it does before it is let go on, ``after``: when it has looked.
        """
        fifo, size = self._directory / f"fifo{value}", size or self.size
        os.mkfifo(fifo)
        fill = ("turn", f"grow:p:{size}", f"touch:p:{size}:{value}", "iterate:5", *rests, "say:filled")
        check = (f"listen:{fifo}", f"check:{size}:{value}", *after, "release")
        job = self.daemon.fake("attach", "help", *before, *fill, *check)
        self._fifos[job] = fifo
        return job

    def filled(self, value: int, *before: str, **how: Any) -> int:
        job = self.start(value, *before, **how)
        self.daemon.until_line(job, "filled")
        return job

    def go_on(self, job: int) -> None:
        self._fifos[job].write_bytes(b"go")

    def intact(self, *jobs: int) -> None:
        """Let one after the other go on to its end: its bytes are what it wrote."""
        for job in jobs:
            self.go_on(job)
            self.ended_intact(job)

    def ended_intact(self, job: int) -> None:
        info = self.daemon.wait(job)
        assert info["outcome"] == "succeeded", (info, self.daemon.output(job), self.daemon.log())
        assert "intact" in self.daemon.output(job), self.daemon.output(job)

    def device(self) -> dict[str, Any]:
        (device,) = self.daemon.get("/v1/devices")["devices"]
        return device

    def nothing_left(self) -> None:
        assert (self.device()["used_bytes"], self.device()["stored_bytes"]) == (0, 0)
