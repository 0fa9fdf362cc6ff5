"""``python -m tests.fuzz [--minutes N] [--seed N] [TARGET...]``: look for inputs that break a target."""

from __future__ import annotations

import argparse
import itertools
import logging
import random
import time
from collections.abc import Iterator

from tests.fuzz import sessions
from tests.fuzz.targets import TARGETS, endpoint

EXAMPLES = 500


def until(end: float, first: int) -> Iterator[int]:
    """Numbers of sessions, one after the other, until the time is over."""
    return itertools.takewhile(lambda _: time.monotonic() < end, itertools.count(first))


def run(target: str, minutes: float, number: int) -> int:
    """How many inputs have been tried."""
    return sum(sessions.session(target, each, EXAMPLES) for each in until(time.monotonic() + 60 * minutes, number))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz what reads the bytes of others")
    parser.add_argument("--minutes", type=float, default=5, help="of each target (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="default: a new one")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"default: {', '.join(TARGETS)}")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    print(f"seed {options.seed}")
    for target in options.targets or TARGETS:
        print(f"{target}: {run(target, options.minutes, options.seed)} inputs", flush=True)
    endpoint.stop()


if __name__ == "__main__":
    main()
