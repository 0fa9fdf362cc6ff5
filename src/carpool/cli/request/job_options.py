"""Shared by `submit` and `run`: their options, and the request that is made of the options."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from carpool.cli.base.cli_error import Problem
from carpool.cli.base.exit_codes import Exit
from carpool.cli.base.options_common import POSITIVE, POSITIVE_TIME_US, Parsed, not_negative
from carpool.cli.request.array_range import array_of
from carpool.cli.request.command_line import resolve_command
from carpool.cli.request.limits import limit_signal
from carpool.cli.request.notify import notify_events, notify_target, targets
from carpool.cli.request.own_files import own_files
from carpool.cli.request.start_conditions import Dependencies, after, begin_time, by_kind
from carpool.cli.request.sweep import parameter
from carpool.cli.request.variables import VARIABLE_OPTIONS, from_files
from carpool.core.model import Dependency, Engine
from carpool.protocol.api import SubmitRequest
from carpool.protocol.notices import NotifyTarget
from carpool.protocol.paths import expanded
from carpool.protocol.units import parse_size

F = TypeVar("F", bound=Callable[..., object])


def memory_hint(text: str) -> tuple[int, int | None]:
    """Parse ``300MiB`` or ``300MiB/1GiB``: persistent, or persistent and ephemeral.  Raises ValueError, for people."""
    persistent, slash, ephemeral = text.partition("/")
    return parse_size(persistent), parse_size(ephemeral) if slash else None


def _each(_context: click.Context, _parameter: click.Parameter, given: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """Join the values of a repeatable option of which each value is a sequence."""
    return tuple(one for value in given for one in value)


_OPTIONS = (
    click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND [ARGS]..."),
    click.option("--shell", metavar="TEXT", help="Instead of a command: a line that bash runs, as in 'a | b && c'."),
    click.option("--name", default="", help="Name of the job in `carpool ls`.  [default: the command]"),
    click.option(
        "--iterations",
        type=POSITIVE,
        help="Iterations that the job will do; used for progress, and for the order under srtf.",
    ),
    click.option(
        "--expect",
        "duration_us",
        type=POSITIVE_TIME_US,
        help="Device time that the job will need, as in 90s or 2h; used for the order under srtf and sjf.  No limit.",
    ),
    click.option(
        "--time", "time_us", type=POSITIVE_TIME_US, help="Stop the job when it has run for this long, as in 2h."
    ),
    click.option(
        "--device-time",
        "device_time_us",
        type=POSITIVE_TIME_US,
        help="Stop the job when it has used this much device time: turns, without the time between them.",
    ),
    click.option(
        "--signal",
        "limit_signal",
        type=Parsed("name[@time]", limit_signal),
        help="Send the job a signal before the end of --time, and of --device-time, as in USR1@120 (120 s before; USR1"
        " alone: 60 s).",
    ),
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
        "--after",
        multiple=True,
        type=Parsed("[how:]job[,job]", after),
        callback=_each,
        help="Start after these jobs have succeeded; any:JOB after it has ended, notok:JOB if it fails.  Repeatable, as"
        " is 'ok:3 any:4' in one.  A job whose condition can never come true is refused.",
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
        type=click.Choice([engine.value for engine in Engine]),
        default=Engine.GRANT.value,
        show_default=True,
        help="How the job shares its device.  grant: libcarpool, in the job, asks for memory and turns.  checkpoint:"
        " the GPU's driver suspends the job between turns, for programs that libcarpool cannot be loaded into.",
    ),
    click.option(
        "--chdir", "-D", "directory", metavar="DIR", help="Working directory of the job.  [default: the current one]"
    ),
    *VARIABLE_OPTIONS,
    click.option(
        "--notify",
        multiple=True,
        type=Parsed("target", notify_target),
        help="Tell webhook:URL (JSON by POST) or exec:COMMAND (CARPOOL_EVENT and CARPOOL_JOB_ID among its variables)"
        " of the job's start and end; repeatable.",
    ),
    click.option(
        "--notify-on",
        type=Parsed("event[,event]", notify_events),
        help="Only of some of start, end, failure, timeout; end is every end.  [default: all]",
    ),
)


#: Options of jobs without a terminal.
_BACKGROUND = (
    click.option(
        "--output",
        "-o",
        metavar="FILE",
        help="File for the job's output, as in run-%j.out: %j is the id, %x the name, %a the index in an array or grid,"
        " %u the user, %% a %.  [default: a log that Carpool keeps]",
    ),
    click.option(
        "--error", "-e", metavar="FILE", help="File for the job's standard error.  [default: that of --output]"
    ),
    click.option(
        "--retries",
        type=Parsed("n", not_negative),
        default=0,
        show_default=True,
        help="Retries after a failure (out-of-memory is always retried).",
    ),
    click.option(
        "--group", default="", help="Group whose jobs share a limit on how many run at once; `carpool limits` shows it."
    ),
    click.option("--hold", is_flag=True, help="Do not start the job before `carpool release`."),
    click.option(
        "--begin",
        "begin_us",
        type=Parsed("time", begin_time),
        help="Do not start the job before this time, as in 22:00 (tomorrow if that is past), +2h, 2026-12-31T22:00.",
    ),
    click.option("--requeue", is_flag=True, help="Start again if the machine restarts meanwhile; counts as no retry."),
    click.option(
        "--array",
        type=Parsed("indices[%n]", array_of),
        help="Submit a job for each index, as in 0-9 or 1,5-20:5; %3 at the end: three of them run at once.  A job has"
        " its index in CARPOOL_ARRAY_INDEX.",
    ),
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
    """Add the options that `submit` and `run` have in common; `submission` takes these options by the same names."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, words: tuple[str, ...], shell: str | None, **options: Any) -> object:
        return function(*arguments, words=_command(words, shell), **options)

    result: Any = wrapped
    for option in reversed(_OPTIONS):
        result = option(result)
    return result  # type: ignore[no-any-return]  # click's own types say less


def _command(words: tuple[str, ...], shell: str | None) -> tuple[str, ...]:
    if shell is None:
        return words
    if words:
        raise click.UsageError(f"--shell has the whole command: {words[0]!r} is too much.")
    return "bash", "-c", shell


def with_background_options(function: F) -> F:
    """Add the options of `submit` alone."""
    for option in reversed(_BACKGROUND):
        function = option(function)
    return function


def submission(
    words: Sequence[str],
    name: str,
    iterations: int | None,
    duration_us: int | None,
    time_us: int | None,
    device_time_us: int | None,
    limit_signal: tuple[int, int] | None,
    memory: tuple[int, int | None] | None,
    weight: int,
    after: Sequence[Dependencies],
    device: str | None,
    exclusive: bool,
    gpus: int,
    engine: str,
    directory: str | None,
    foreground: bool = False,
    retries: int = 0,
    requeue: bool = False,
    hold: bool = False,
    group: str = "",
    begin_us: int | None = None,
    environ: dict[str, str] | None = None,
    variables: Sequence[tuple[str, str]] = (),
    env_files: Sequence[str] = (),
    output: str | None = None,
    error: str | None = None,
    index: int | None = None,
    array_limit: int = 0,
    notify: Sequence[NotifyTarget] = (),
    notify_on: Sequence[str] | None = None,
    parameters: Mapping[str, str] | None = None,
    given: Sequence[str] = (),
    activated: Mapping[str, str] | None = None,
) -> SubmitRequest:
    """Make a request, checked as far as possible without the daemon.  Raises Problem.

    ``environ``: environment of the job without ``variables`` and ``env_files``; None: that of this process.
    ``index``: of the job in its array or grid; ``parameters``: the job's values of a grid; ``given``: names in
    ``environ`` that are not the shell's.
    """
    env = captured_environment(os.environ) if environ is None else environ
    own = from_files(env_files) | dict(variables)
    env = env | own
    where = job_directory(directory)
    files = own_files(output, error, where, name or (Path(words[0]).name if words else ""), index)
    persistent, ephemeral = memory or (None, None)
    number, before_us = limit_signal or (0, 0)
    return SubmitRequest(
        argv=[checked_text(word, "the command") for word in resolve_command(words, where, env)],
        cwd=checked_text(str(where), "the directory"),
        env=env,
        name=checked_text(name, "the name"),
        iterations=iterations,
        duration_us=duration_us,
        time_us=time_us,
        device_time_us=device_time_us,
        limit_signal=number,
        limit_signal_us=before_us,
        persistent_bytes=persistent,
        ephemeral_bytes=ephemeral,
        weight=weight,
        after=by_kind(after, Dependency.OK),
        after_any=by_kind(after, Dependency.ANY),
        after_notok=by_kind(after, Dependency.NOTOK),
        device=None if device is None else ",".join(_names(device)),
        exclusive=exclusive,
        gpus=gpus,
        engine=engine,
        foreground=foreground,
        retries=retries,
        requeue=requeue,
        output=files[0],
        error=files[1],
        hold=hold,
        group=group,
        begin_us=begin_us,
        index=index,
        array_limit=array_limit,
        notify=targets(notify, notify_on, where, env),
        parameters=dict(parameters or {}),
        own_variables=sorted({*given, *own}),
        activated=dict(activated or {}),
    )


def _names(devices: str) -> list[str]:
    """Return the names of devices, each once.  Raises Problem."""
    names = [name.strip() for name in devices.split(",")]
    if not all(names):
        raise Problem(Exit.USAGE, "bad_device", f"--device-id {devices}: a name is missing", "as in host0,host1")
    return list(dict.fromkeys(names))


def job_directory(directory: str | None) -> Path:
    """Return the directory where a job is to run.  Raises Problem."""
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
        raise Problem(Exit.NOT_FOUND, "missing_directory", f"there is no directory {where}", "check --chdir")
    return where.resolve() if directory else where


def captured_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment, with the active virtual environment, without variables that are no text (rare)."""
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
    """Return the value if JSON can carry it.  Raises Problem."""
    if not _is_text(value):
        shown = value.encode(errors="backslashreplace").decode()
        raise Problem(Exit.USAGE, "not_text", f"{what} is not UTF-8: {shown}", "rename it, or use a symbolic link")
    return value
