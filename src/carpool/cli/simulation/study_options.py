"""The options of ``carpool simulate`` about many simulations at once, and about many devices."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple, TypeVar

import click

from carpool.cli.base.options_common import POSITIVE, Parsed
from carpool.options.codecs import whole_number
from carpool.protocol.setting_text import share_ppm

F = TypeVar("F", bound=Callable[..., object])
#: The value of --spread that means: as the jobs themselves show.
MEASURED = "measured"
MOST_LOADS = 1000
_HOSTS = re.compile(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,3})\Z", re.ASCII)
_EVERY_CORE = "all"


def seeds(text: str) -> range:
    """Parse one seed, or FROM:TO without TO.  Raises ValueError, for people.

    >>> seeds("3"), seeds("0:20")
    (range(3, 4), range(0, 20))
    """
    first, colon, end = text.partition(":")
    begin = whole_number(first, 0)
    found = range(begin, whole_number(end, 0) if colon else begin + 1)
    if not found:
        raise ValueError(f"{text!r} has no seed: TO is not included, so it must be larger than FROM")
    return found


def loads(text: str) -> tuple[float, ...]:
    """Parse one load, or FROM:TO:STEP with TO.  Raises ValueError, for people.

    >>> loads("0.9"), loads("0.5:0.8:0.1")
    ((0.9,), (0.5, 0.6, 0.7, 0.8))
    """
    parts = [_number(text, part) for part in text.split(":")]
    if len(parts) not in (1, 3):
        raise ValueError(f"{text!r} is neither a load, as in 0.9, nor FROM:TO:STEP, as in 0.5:1.0:0.1")
    first, last, step = parts if len(parts) == 3 else (parts[0], parts[0], Fraction(1))
    count = (last - first) // step + 1
    if not 1 <= count <= MOST_LOADS:
        raise ValueError(f"{text!r} has {max(0, count)} loads; it must have 1 to {MOST_LOADS}")
    return tuple(float(first + number * step) for number in range(count))


def _number(text: str, part: str) -> Fraction:
    try:
        number = Fraction(part.strip())
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{text!r}: {part!r} is not a number") from None
    if number <= 0:
        raise ValueError(f"{text!r}: {part} is not above 0")
    return number


class HostsOf(NamedTuple):
    """Machines that are alike, and the devices of each."""

    hosts: int
    devices: int


def hosts(text: str) -> HostsOf:
    """Parse HOSTSxDEVICES.  Raises ValueError, for people.

    >>> hosts("50x8")
    HostsOf(hosts=50, devices=8)
    """
    found = _HOSTS.match(text)
    if found is None:
        raise ValueError(f"{text!r} is not HOSTSxDEVICES, as in 50x8")
    return HostsOf(int(found[1]), int(found[2]))


def spread(text: str) -> int | str:
    """Parse a share, in millionths, or `MEASURED`.  Raises ValueError, for people."""
    return MEASURED if text == MEASURED else share_ppm(text)


def processes(text: str) -> int:
    """Parse how many processes; all: as many as there are cores for this one.  Raises ValueError, for people."""
    if text == _EVERY_CORE:
        return len(os.sched_getaffinity(0))
    try:
        return whole_number(text, 1)
    except ValueError as error:
        raise ValueError(f"{error}; write -j N, or -j at the end for as many as there are cores") from None


def with_study_options(function: F) -> F:
    """Add ``seeds``, ``loads``, ``replicas``, ``spread``, ``processes`` and ``hosts``."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS = (
    click.option(
        "--seed",
        "seeds",
        metavar="N|FROM:TO",
        type=Parsed("seed", seeds),
        help="For --generate: the same seed gives the same jobs; of FROM:TO (without TO), each.  [default: 0]",
    ),
    click.option(
        "--load",
        "loads",
        metavar="X|FROM:TO:STEP",
        type=Parsed("load", loads),
        help="For --generate: the load, of all devices; for other jobs: how many times as fast they arrive.",
    ),
    click.option(
        "--replicas", type=POSITIVE, help="Simulate N times, with start-ups and paces drawn from their spread."
    ),
    click.option(
        "--spread",
        metavar="SHARE",
        type=Parsed("share", spread),
        help="For --replicas: standard deviation of start-ups and paces, as in 10%; measured: from jobs of one name."
        "  [default: measured, with --from-journal]",
    ),
    click.option(
        "-j",
        "--processes",
        "processes",
        metavar="[N]",
        is_flag=False,
        flag_value=_EVERY_CORE,
        type=Parsed("n", processes),
        help="Simulate in N processes side by side; without N, as many as there are cores.  [default: 1]",
    ),
    click.option(
        "--hosts",
        metavar="HOSTSxDEVICES",
        type=Parsed("hosts", hosts),
        help="Number of devices, as in 50x8: 50 machines of 8, all alike; a job may have devices of several machines.",
    ),
)
