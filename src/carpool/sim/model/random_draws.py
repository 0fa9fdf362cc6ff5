"""Random draws that stay the same for ever.

Only ``Random(int)`` and ``Random.random`` are promised to give the same numbers in every version of Python, so all
draws are made from that one method.  Logarithms and the like come from the C library, where another machine may
differ in the last bit; rounding to whole microseconds nearly always hides that.
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
    """A draw of the exponential distribution; its ``mean`` is in the unit of the result."""
    return -mean * math.log(1.0 - random.random())


def lognormal(random: Random, mean: float, sigma: float) -> float:
    """``sigma`` is the standard deviation of the logarithm; ``mean`` is that of the values themselves."""
    radius = math.sqrt(-2.0 * math.log(1.0 - random.random()))
    normal = radius * math.cos(2.0 * math.pi * random.random())
    return mean * math.exp(sigma * normal - sigma * sigma / 2.0)


def pareto(random: Random, mean: float, exponent: float) -> float:
    """``exponent`` is above 1; the smaller it is, the longer the longest are."""
    least = mean * (exponent - 1.0) / exponent
    # No double lies between 1 - 2**-53 and 1, so this never divides by zero.
    return least * math.exp(-math.log(1.0 - random.random()) / exponent)


def uniform(random: Random, low: float, high: float) -> float:
    """A draw from ``low`` up to, and without, ``high``."""
    return low + (high - low) * random.random()


def pick(random: Random, options: Sequence[T]) -> T:
    """One of the options, of which there must be at least one; all are as likely."""
    return options[int(random.random() * len(options))]


def weighted(random: Random, options: Sequence[tuple[T, float]]) -> T:
    """Options with their shares, which sum to 1."""
    rest = random.random()
    for option, share in options:
        rest -= share
        if rest < 0.0:
            return option
    return options[-1][0]


def arrivals(random: Random, count: int, mean_us: float) -> list[int]:
    """A Poisson process that begins with an arrival at 0."""
    times, now = [], 0.0
    for _ in range(count):
        times.append(round(now))
        now += exponential(random, mean_us)
    return times
