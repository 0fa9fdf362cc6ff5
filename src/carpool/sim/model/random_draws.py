"""Random draws that never change between versions.

Only ``Random(int)`` and ``Random.random`` are promised to give the same numbers in every version of Python, so all
draws are made from that one method.  Logarithms and the like come from the C library, where another machine may differ
in the last bit; rounding to whole microseconds nearly always hides that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")

SECOND = 1_000_000
MINUTE = 60 * SECOND


def exponential(random: Random, mean: float) -> float:
    """Draw from the exponential distribution; ``mean`` is in the unit of the result."""
    return -mean * math.log(1.0 - random.random())


def lognormal(random: Random, mean: float, sigma: float) -> float:
    """Draw from the lognormal distribution; ``sigma`` is the logarithm's, ``mean`` that of the values themselves."""
    radius = math.sqrt(-2.0 * math.log(1.0 - random.random()))
    normal = radius * math.cos(2.0 * math.pi * random.random())
    return mean * math.exp(sigma * normal - sigma * sigma / 2.0)


def pareto(random: Random, mean: float, exponent: float) -> float:
    """Draw from a Pareto distribution; ``exponent`` is above 1, and a smaller one gives longer extremes."""
    least = mean * (exponent - 1.0) / exponent
    # No double lies between 1 - 2**-53 and 1, so this never divides by zero.
    return least * math.exp(-math.log(1.0 - random.random()) / exponent)


def uniform(random: Random, low: float, high: float) -> float:
    """Draw a number from ``low`` up to, but without, ``high``."""
    return low + (high - low) * random.random()


def pick(random: Random, options: Sequence[T]) -> T:
    """Draw one of the options, of which there must be at least one; all are equally likely."""
    return options[int(random.random() * len(options))]


def weighted(random: Random, options: Sequence[tuple[T, float]]) -> T:
    """Draw one of the options with their shares, which sum to 1."""
    rest = random.random()
    for option, share in options:
        rest -= share
        if rest < 0.0:
            return option
    return options[-1][0]


def arrivals(random: Random, count: int, mean_us: float) -> list[int]:
    """Return the times of a Poisson process that begins with an arrival at 0."""
    times, now = [], 0.0
    for _ in range(count):
        times.append(round(now))
        now += exponential(random, mean_us)
    return times
