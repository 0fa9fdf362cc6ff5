"""What `submit` and `run` have in common: their options, and the request that is made of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import click

from carpool.cli.base.cli_error import Problem
from carpool.cli.base.exit_codes import Exit
from carpool.cli.base.options_common import POSITIVE, TIME_US, Parsed, job_ids, not_negative
from carpool.cli.request.command_line import resolve_command
from carpool.cli.request.sweep import parameter
from carpool.core.model import Engine
from carpool.protocol.api import AUTO, SubmitRequest
from carpool.protocol.paths import expanded
from carpool.protocol.units import parse_size

F = TypeVar("F", bound=Callable[..., object])


def memory_hint(text: str) -> tuple[int, int | None]:
    """``300MiB`` or ``300MiB/1GiB``: persistent, or persistent and ephemeral.  Raises ValueError, for people."""
    persistent, slash, ephemeral = text.partition("/")
    return parse_size(persistent), parse_size(ephemeral) if slash else None


_OPTIONS = (
    click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND [ARGS]..."),
    click.option("--name", default="", help="Name of the job in `carpool ls`.  [default: the command]"),
    click.option(
        "--iterations",
        type=POSITIVE,
        help="Iterations that the job will do; used for progress, and for the order under srtf.",
    ),
    click.option("--duration", "duration_us", type=TIME_US, help="How long the job would take alone, as in 90s or 2h."),
    click.option(
        "--mem",
        "memory",
        type=Parsed("p[/e]", memory_hint),
        help="Expected memory, as in 300MiB or 300MiB/1GiB (persistent/ephemeral).",
    ),
    click.option(
        "--weight",
        type=POSITIVE,
        default=100,
        show_default=True,
        help="Share of turns under fair; 200 is twice as much.",
    ),
    click.option(
        "--after", multiple=True, type=Parsed("id[,id]", job_ids), help="Start after these jobs have succeeded."
    ),
    click.option(
        "--device",
        "--device-id",
        "device",
        metavar="ID[,ID]",
        help="Only on one of these devices, as in host0.  [default: any]",
    ),
    click.option("--exclusive", is_flag=True, help="Give the job a device to itself; it waits until one is empty."),
    click.option(
        "--gpus",
        type=POSITIVE,
        default=1,
        show_default=True,
        help="Number of devices; multi-GPU jobs get exclusive devices.  NCCL between them is experimental.",
    ),
    click.option(
        "--engine",
        type=click.Choice([AUTO, *(engine.value for engine in Engine)]),
        default=AUTO,
        show_default=True,
        help="How the job shares its device.  grant: libcarpool, in the job, asks for memory and turns.  checkpoint:"
        " the GPU's driver suspends the job between turns, for programs that libcarpool cannot be loaded into."
        "  auto: grant, unless the program or an earlier run shows that it needs checkpoint.",
    ),
    click.option("--directory", "-C", metavar="DIR", help="Working directory of the job.  [default: the current one]"),
)


#: Of jobs that nobody waits for at a terminal.
_BACKGROUND = (
    click.option(
        "--retries",
        type=Parsed("n", not_negative),
        default=0,
        show_default=True,
        help="Retries after a failure (out-of-memory is always retried).",
    ),
    click.option("--requeue", is_flag=True, help="Start again if the machine restarts meanwhile; counts as no retry."),
    click.option(
        "--param",
        "parameters",
        multiple=True,
        type=Parsed("name=v[,v]", parameter),
        help="Submit a job for each value, which replaces {NAME} and is CARPOOL_PARAM_NAME in the job; repeatable: a"
        " job for each combination.",
    ),
)


def with_submission_options(function: F) -> F:
    """Adds the options that `submit` and `run` have in common; `submission` takes them by the same names."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def with_background_options(function: F) -> F:
    """Adds the options of `submit` alone."""
    for option in reversed(_BACKGROUND):
        function = option(function)
    return function


def submission(
    words: Sequence[str],
    name: str,
    iterations: int | None,
    duration_us: int | None,
    memory: tuple[int, int | None] | None,
    weight: int,
    after: Sequence[Sequence[int]],
    device: str | None,
    exclusive: bool,
    gpus: int,
    engine: str,
    directory: str | None,
    foreground: bool = False,
    retries: int = 0,
    requeue: bool = False,
    environ: dict[str, str] | None = None,
) -> SubmitRequest:
    """The request, checked as far as it can be without the daemon.  Raises Problem.

    ``environ``: that of the job; None: that of this process.
    """
    env = captured_environment(os.environ) if environ is None else environ
    where = job_directory(directory)
    persistent, ephemeral = memory or (None, None)
    return SubmitRequest(
        argv=[checked_text(word, "the command") for word in resolve_command(words, where, env)],
        cwd=checked_text(str(where), "the directory"),
        env=env,
        name=checked_text(name, "the name"),
        iterations=iterations,
        duration_us=duration_us,
        persistent_bytes=persistent,
        ephemeral_bytes=ephemeral,
        weight=weight,
        after=sorted({number for group in after for number in group}),
        device=None if device is None else ",".join(_names(device)),
        exclusive=exclusive,
        gpus=gpus,
        engine=engine,
        foreground=foreground,
        retries=retries,
        requeue=requeue,
    )


def _names(devices: str) -> list[str]:
    """Each once.  Raises Problem."""
    names = [name.strip() for name in devices.split(",")]
    if not all(names):
        raise Problem(Exit.USAGE, "bad_device", f"--device-id {devices}: a name is missing", "as in host0,host1")
    return list(dict.fromkeys(names))


def job_directory(directory: str | None) -> Path:
    """Where a job is to run.  Raises Problem."""
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise Problem(
            Exit.NOT_FOUND,
            "missing_directory",
            "the current directory no longer exists",
            "change to a directory that exists",
        ) from None
    where = here / expanded(directory) if directory else here
    if not where.is_dir():
        raise Problem(Exit.NOT_FOUND, "missing_directory", f"there is no directory {where}", "check --directory")
    return where.resolve() if directory else where


def captured_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """All of it, the active virtual environment included.  Variables that are no text (rare) cannot be sent."""
    captured = {}
    for name, value in environ.items():
        if _is_text(name) and _is_text(value):
            captured[name] = value
        else:
            shown = name.encode(errors="backslashreplace").decode()
            click.echo(f"carpool: the variable {shown} is not UTF-8; the job will not see it", err=True)
    return captured


def _is_text(value: str) -> bool:
    # Undecodable bytes arrive as lone surrogates, which JSON cannot carry.
    return not any("\ud800" <= character <= "\udfff" for character in value)


def checked_text(value: str, what: str) -> str:
    """The value, which JSON can carry.  Raises Problem."""
    if not _is_text(value):
        shown = value.encode(errors="backslashreplace").decode()
        raise Problem(Exit.USAGE, "not_text", f"{what} is not UTF-8: {shown}", "rename it, or use a symbolic link")
    return value
