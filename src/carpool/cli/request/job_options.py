"""Shared by `submit`, `run` and what joins: job options on a command line, and the request that is made of them."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.options_common import Parsed
from carpool.cli.request.awaited_jobs import after
from carpool.cli.request.command_line import resolve_command
from carpool.cli.request.output_files import own_files
from carpool.cli.request.variables import from_files
from carpool.options.table import BY_NAME, JOINING_OPTIONS, OPTIONS, JobOption, request_fields
from carpool.protocol.api import SubmitRequest
from carpool.protocol.notices import EVENTS, NotifyTarget
from carpool.protocol.paths import expanded
from carpool.protocol.session import JoinOptions

F = TypeVar("F", bound=Callable[..., object])
_WORDS = click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND [ARGS]...")


def _click_option(option: JobOption) -> Callable[[F], F]:
    """Return the option for a command of click's; ``--after`` understands all words for jobs."""
    parse = after if option.name == "after" else option.type.text
    number = isinstance(option.default, int) and not option.is_flag
    about = {"default": option.default, "show_default": number, "help": option.help}
    if option.is_flag:
        return click.option(*option.flag, option.name, is_flag=True, **about)
    value = Parsed(option.type.word, parse)
    joined = _each if option.name == "after" else None
    return click.option(*option.flag, option.name, type=value, multiple=option.many, callback=joined, **about)


def _each(_context: click.Context, _parameter: click.Parameter, given: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """Join the values of a repeatable option of which each value is a sequence."""
    return tuple(one for value in given for one in value)


def with_options(function: F, options: Iterable[JobOption]) -> F:
    """Add options, whose values ``function`` gets together by their names, as ``asked``."""
    added = [option for option in options if option.flag]

    @functools.wraps(function)
    def wrapped(*arguments: Any, **given: Any) -> object:
        asked = {option.name: given.pop(option.name) for option in added}
        return function(*arguments, asked=asked, **given)

    result: Any = wrapped
    for option in reversed(added):
        result = _click_option(option)(result)
    return result  # type: ignore[no-any-return]  # click's own types say less


def with_submission_options(function: F) -> F:
    """Add ``words`` and all options of `submit`."""
    return _WORDS(with_options(_with_command(function), OPTIONS))


def with_foreground_options(function: F) -> F:
    """Add ``words`` and the options of `run`."""
    return _WORDS(with_options(_with_command(function), [option for option in OPTIONS if option.run]))


def with_variable_options(function: F) -> F:
    """Add the options ``env`` and ``env_file``."""
    return with_options(function, [BY_NAME["env"], BY_NAME["env_file"]])


def with_joining_options(function: F) -> F:
    """Add the options of processes that join, which ``function`` gets as ``asked: JoinOptions``."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, asked: Mapping[str, Any], **given: Any) -> object:
        checked_text(asked["name"], "the name")
        return function(*arguments, asked=JoinOptions(**request_fields(asked)), **given)

    return with_options(wrapped, JOINING_OPTIONS)  # type: ignore[return-value]  # wraps the same function


def _with_command(function: F) -> F:
    """Make ``--shell`` a part of ``words``."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, words: tuple[str, ...], asked: dict[str, Any], **given: Any) -> object:
        return function(*arguments, words=_command(words, asked.pop("shell")), asked=asked, **given)

    return wrapped  # type: ignore[return-value]  # wraps the same function


def _command(words: tuple[str, ...], shell: str | None) -> tuple[str, ...]:
    if shell is None:
        return words
    if words:
        raise click.UsageError(f"--shell takes the whole command; remove {words[0]!r}.")
    return "bash", "-c", shell


def submission(
    words: Sequence[str],
    asked: Mapping[str, Any],
    *,
    environ: Mapping[str, str] | None = None,
    given: Sequence[str] = (),
    index: int | None = None,
    **fields: Any,
) -> SubmitRequest:
    """Make a request, checked as far as possible without the daemon.  Raises Problem.

    ``asked``: values of options by their names; ``environ``: the job's environment without its own variables (None:
    that of this process); ``given``: names in ``environ`` that are not the shell's; ``index``: of the job in its array
    or grid; ``fields``: fields of the request that no option sets.
    """
    own = variables_of(asked)
    env = (captured_environment(os.environ) if environ is None else dict(environ)) | own
    where = job_directory(asked.get("directory"))
    name = checked_text(asked.get("name") or "", "the name")
    output, error = own_files(asked, where, name or (Path(words[0]).name if words else ""), index)
    told = notify_targets(asked.get("notify") or (), asked.get("notify_on"), where, env)
    return SubmitRequest(
        argv=[checked_text(word, "the command") for word in resolve_command(words, where, env)],
        cwd=checked_text(str(where), "the directory"),
        env=env,
        index=index,
        own_variables=sorted({*given, *own}),
        **request_fields({**asked, "output": output, "error": error, "notify": told}),
        **fields,
    )


def variables_of(asked: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of ``--env`` and ``--env-file``.  Raises Problem."""
    return from_files(asked.get("env_file", ())) | dict(asked.get("env", ()))


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
    """Return the whole environment, with the active virtual environment, without variables that are not text (rare)."""
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


def notify_targets(
    given: Sequence[NotifyTarget], events: Sequence[str] | None, directory: Path, env: Mapping[str, str]
) -> list[NotifyTarget]:
    """Return targets with the chosen events, and with whole paths of programs.  Raises Problem."""
    if events is not None and not given:
        text = "--notify-on needs a target, and no --notify names one"
        raise Problem(Exit.USAGE, "nobody_to_notify", text, "add --notify webhook:URL or --notify exec:COMMAND")
    on = list(EVENTS if events is None else events)
    return [
        NotifyTarget(on, target.webhook, _found(target.command, directory, env) if target.command else [])
        for target in given
    ]


def _found(words: Sequence[str], directory: Path, env: Mapping[str, str]) -> list[str]:
    """Find the program as the user's shell would now: the command gets a plain PATH later.  Raises Problem."""
    program = str(directory / words[0]) if "/" in words[0] else words[0]
    path = shutil.which(program, path=env.get("PATH"))
    if path is None:
        text = f"--notify exec:{words[0]}: there is no such program, or it may not be run"
        raise Problem(Exit.NOT_FOUND, "command_not_found", text, "check its spelling, or give its whole path")
    return [path, *words[1:]]
