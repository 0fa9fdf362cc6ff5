"""The wishes of a process that joins, as options of the commands that print its variables."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from carpool.cli.base.options_common import POSITIVE, TIME_US, Parsed
from carpool.cli.request.job_options import checked_text, memory_hint
from carpool.protocol.session import JoinOptions

F = TypeVar("F", bound=Callable[..., object])

_OPTIONS = (
    click.option("--name", default="", help="Name of the jobs in `carpool ls`.  [default: the command]"),
    click.option(
        "--mem",
        "memory",
        type=Parsed("p[/e]", memory_hint),
        help="Expected memory, as in 300MiB or 300MiB/1GiB (persistent/ephemeral).",
    ),
    click.option("--weight", type=POSITIVE, default=100, show_default=True, help="Share of turns under fair."),
    click.option("--iterations", type=POSITIVE, help="Iterations that each job will do."),
    click.option("--expect", "duration_us", type=TIME_US, help="Device time that each job will need, as in 90s or 2h."),
    click.option("--time", "time_us", type=TIME_US, help="Stop the job when it has run for this long, as in 2h."),
    click.option(
        "--device",
        "--device-id",
        "device",
        metavar="ID",
        help="The device; a GPU has to be named where there are several devices.  [default: any]",
    ),
    click.option("--exclusive", is_flag=True, help="Give each job a device to itself."),
)


def with_joining_options(function: F) -> F:
    """Add the options, which ``function`` gets together, as ``asked``."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, home: Any, as_json: bool, **options: Any) -> object:
        own = {name: options.pop(name) for name in tuple(options) if name not in _NAMES}
        return function(*arguments, home=home, as_json=as_json, asked=_join_options(**options), **own)

    result: Any = wrapped
    for option in reversed(_OPTIONS):
        result = option(result)
    return result  # type: ignore[no-any-return]  # click's own types say less


_NAMES = ("name", "memory", "weight", "iterations", "duration_us", "time_us", "device", "exclusive")


def _join_options(name: str, memory: tuple[int, int | None] | None, **options: Any) -> JoinOptions:
    persistent, ephemeral = memory or (None, None)
    return JoinOptions(
        name=checked_text(name, "the name"), persistent_bytes=persistent, ephemeral_bytes=ephemeral, **options
    )
