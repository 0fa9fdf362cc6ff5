"""A scripted job that computes at a pace: ``paced:COUNT:MS`` are iterations that hold the turn for so long."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "daemon"))

from fakejob import FakeJob


class PacedJob(FakeJob):
    def paced(self, count: str, ms: str) -> None:
        for _ in range(int(count)):
            self.turn()
            time.sleep(int(ms) / 1000)
            self.seat.set("iterations", self.seat.get("iterations") + 1)
            self.release()

    def shout(self, hexadecimal: str) -> None:
        """Print a text with whatever characters."""
        print(bytes.fromhex(hexadecimal).decode(), flush=True)


if __name__ == "__main__":
    job = PacedJob()
    for step in sys.argv[1:]:
        name, *arguments = step.split(":")
        getattr(job, name.replace("-", "_"))(*arguments)
