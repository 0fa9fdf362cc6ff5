"""What runs a target: replays of its corpus, and sessions that look for inputs which break it."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.mutations import mutated
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).resolve().parent / "corpus"
#: Of one input, which has 64 KiB at most.
MOST_CPU_S, MOST_BYTES = 2.0, 64 << 20


def inputs(target: str) -> list[Path]:
    """The files of a target's corpus.  Names that do not come from a hash say what was found by them."""
    return sorted((CORPUS / target).iterdir())


def replay(target: str, data: bytes) -> None:
    """Fails if the target raises, or takes more time or memory than an input can be worth."""
    tracemalloc.start()
    begin = time.thread_time()
    try:
        TARGETS[target].check(data)
        took_s, (_, peak) = time.thread_time() - begin, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert took_s < MOST_CPU_S, f"{took_s:.1f} s for {len(data)} bytes"
    assert peak < MOST_BYTES, f"{peak >> 20} MiB for {len(data)} bytes"


def session(target: str, number: int, examples: int) -> int:
    """Returns how many inputs were tried, the same ones for the same number.

    Raises what the target raises, for the smallest input that it raises it for.
    """
    corpus = [path.read_bytes() for path in inputs(target)]
    count, last = 0, b""

    @seed(number)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(mutated(corpus, TARGETS[target].words))
    def attempt(data: bytes) -> None:
        nonlocal count, last
        count, last = count + 1, data
        begin = time.thread_time()
        TARGETS[target].check(data)
        assert time.thread_time() - begin < MOST_CPU_S

    try:
        attempt()
    except Exception as error:  # the last input before hypothesis gives up is the smallest one
        error.add_note(f"{target}: the input is {last!r}; keep it as a file of {CORPUS / target}")
        raise
    return count
