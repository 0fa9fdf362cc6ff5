"""A job without tensors: it takes turns for nothing, ten a second, as `tests/daemon/fakejob.py` does.

With a number so many, and without one until it is ended.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/daemon"))

from fakejob import FakeJob  # type: ignore[import-not-found]  # among the tests


def main() -> None:
    job = FakeJob()
    job.attach()
    job.grow("p", str(4 << 20))
    job.grow("e", str(2 << 20))
    for _ in range(int(sys.argv[1])) if len(sys.argv) > 1 else itertools.count():
        job.rounds("1")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
