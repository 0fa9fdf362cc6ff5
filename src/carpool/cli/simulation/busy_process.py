"""A busy process of `carpool calibrate`: it works when its standard input says so, and says how fast it was.

A program of its own, which imports the standard library only.  Each line is two times of the monotonic clock,
nanoseconds: from when to when to work.  The answer is the number of pieces of work per second.
"""

from __future__ import annotations

import sys
import time
from operator import mul

SECOND_NS = 1_000_000_000
#: One piece of work takes about 0.1 ms, in the loops of the interpreter, as the start of a program does.
NUMBERS = [float(number) for number in range(4096)]


def work(begin_ns: int, end_ns: int) -> float:
    """Wait for a time, work until another, and return the pieces of work per second."""
    time.sleep(max(0, begin_ns - time.monotonic_ns()) / SECOND_NS)
    done = 0
    while (now := time.monotonic_ns()) < end_ns or not done:
        sum(map(mul, NUMBERS, NUMBERS))
        done += 1
    return done * SECOND_NS / (now - begin_ns)


def main() -> None:
    """Answer each line, until there are no more."""
    for line in sys.stdin:
        begin_ns, end_ns = map(int, line.split())
        print(work(begin_ns, end_ns), flush=True)


if __name__ == "__main__":
    main()
