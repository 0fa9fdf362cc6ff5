"""`carpool.submit` and `carpool.map`: commands and functions as jobs."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack, overload

import msgspec

from carpool.cli.base.cli_error import Problem
from carpool.cli.base.daemon_start import connected
from carpool.cli.request.job_options import captured_environment, submission
from carpool.cli.request.sweep import combinations, named
from carpool.core.model import Dependency
from carpool.options.table import from_python
from carpool.protocol.api import SubmitManyRequest, SubmitRequest
from carpool.protocol.environment import TASK
from carpool.protocol.paths import cache_directory, default_home
from carpool.tasks import transport
from carpool.tasks.handle import SubmittedJob

T = TypeVar("T")


class CannotSubmit(Exception):
    """The command or function could not run as a job; the text gives the reason and what to do."""


class JobOptions(TypedDict, total=False):
    """The options of `carpool submit`, by their names.  ``memory``: as in "300MiB/1GiB"; ``after``: jobs, or ids."""

    name: str
    iterations: int
    memory: str
    after: Iterable[int | SubmittedJob[Any]]
    device: str
    gpus: int
    exclusive: bool
    retries: int
    requeue: bool
    output: str
    error: str
    notify: Sequence[str]
    notify_on: Sequence[str]
    env: Mapping[str, str]
    chdir: str | os.PathLike[str]
    home: str | os.PathLike[str]


@overload
def submit(work: Callable[..., T], *arguments: Any, **options: Unpack[JobOptions]) -> SubmittedJob[T]: ...
@overload
def submit(work: Sequence[str], **options: Unpack[JobOptions]) -> SubmittedJob[None]: ...
def submit(work: Any, *arguments: Any, **options: Unpack[JobOptions]) -> SubmittedJob[Any]:
    """Submit a command (a list of words) or a function with its arguments, and return.  Starts a daemon if none runs.

    Keywords are the options of `carpool submit`, None stands for the default; `functools.partial` gives a function
    keywords of its own.  A function and its arguments are pickled, so the function must be at the top level of a module
    or a script; a script needs ``if __name__ == "__main__":`` around the submitting code.  Raises CannotSubmit, and
    ClientError if the daemon refuses.
    """
    if isinstance(work, str):
        raise TypeError(f"a command is a list of words, as in {work.split()!r}, or ['bash', '-c', {work!r}]")
    if not callable(work):
        return _submitted([_Piece(list(work), options.get("name") or "")], options)[0]
    return _submitted([_piece(work, arguments, {}, options.get("name") or _name_of(work))], options)[0]


def map(  # noqa: A001 - the public name is `carpool.map`
    function: Callable[..., T], grid: Mapping[str, Iterable[Any]] | Iterable[Any], **options: Unpack[JobOptions]
) -> list[SubmittedJob[T]]:
    """Submit a job for each element of ``grid``, or for each combination of a mapping's values, passed by keyword.

    All jobs are accepted or none.  ``[job.result() for job in carpool.map(square, range(3))]``.
    """
    name = options.get("name") or _name_of(function)
    if isinstance(grid, Mapping):
        values = {key: list(found) for key, found in grid.items()}
        numbers = {key: [str(number) for number in range(len(found))] for key, found in values.items()}
        chosen = [{key: values[key][int(place)] for key, place in found.items()} for found in combinations(numbers)]
        pieces = [_piece(function, (), each, named(name, {k: str(v) for k, v in each.items()})) for each in chosen]
    else:
        pieces = [_piece(function, (each,), {}, f"{name} {number}") for number, each in enumerate(grid)]
    return _submitted(pieces, options)


@dataclass(frozen=True, slots=True)
class _Piece:
    """One job before it has options."""

    words: list[str]
    name: str
    task: Path | None = None


def _piece(function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any], name: str) -> _Piece:
    try:
        call = pickle.dumps((function, arguments, keywords))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        text = f"{_name_of(function)} and its arguments cannot be pickled: {error}"
        raise CannotSubmit(f"{text}; use a function of the top level of a module, and no open files") from None
    root = cache_directory() / "tasks"
    task = transport.new_task(root)
    transport.remove_old(root)
    path = [entry or os.getcwd() for entry in sys.path]  # noqa: PTH109 - as text
    about = {"path": path, "main": _script(function) if b"__main__" in call else None, "call": call}
    transport.write(task / transport.CALL, pickle.dumps(about))
    # The same function gives the same command: measurements of earlier runs count for the next run.
    module = getattr(_innermost(function), "__module__", "")
    words = [sys.executable, "-P", "-m", "carpool.tasks", f"{module}:{_name_of(function)}"]
    return _Piece(words, name, task)


def _innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    return _innermost(function.func) if isinstance(function, partial) else function


def _name_of(function: Callable[..., Any]) -> str:
    inner = _innermost(function)
    return getattr(inner, "__qualname__", type(inner).__qualname__)


def _script(function: Callable[..., Any]) -> tuple[str, str]:
    """Return how the job finds the script that defines ``function``: as a module or by path.  Raises CannotSubmit."""
    main = sys.modules["__main__"]
    if (spec := getattr(main, "__spec__", None)) is not None:
        return "module", spec.name
    if file := getattr(main, "__file__", None):
        return "path", os.path.abspath(file)  # noqa: PTH100 - links stay
    raise CannotSubmit(
        f"{_name_of(function)}, or an argument, was typed into an interactive session, where no job finds it: "
        "write it into a module and import it"
    )


def _submitted(pieces: list[_Piece], options: JobOptions) -> list[SubmittedJob[Any]]:
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    home = Path(given.get("home", default_home())).absolute()
    try:
        many = _request(pieces, given)
        with connected(home) as client:
            numbers = client.submit_many(many) if pieces else []
    except BaseException as error:
        for piece in pieces:
            if piece.task is not None:
                shutil.rmtree(piece.task, ignore_errors=True)
        if isinstance(error, Problem):
            hint = f"; {error.info.hint}" if error.info.hint else ""
            raise CannotSubmit(f"{error.info.message}{hint}") from None
        raise
    return [SubmittedJob(number, home, piece.task) for number, piece in zip(numbers, pieces, strict=True)]


def _request(pieces: list[_Piece], options: Mapping[str, Any]) -> SubmitManyRequest:
    unknown = sorted(set(options) - set(JobOptions.__annotations__))
    if unknown:
        known = ", ".join(JobOptions.__annotations__)
        raise TypeError(f"there is no option {unknown[0]!r}; the options: {known}")
    asked, env = _asked(options), captured_environment(os.environ)
    several = len(pieces) > 1
    jobs = [_one(piece, asked, env, n if several else None) for n, piece in enumerate(pieces)]
    return SubmitManyRequest(jobs, env | asked["env"], arrays=[list(range(len(jobs)))] if several else [])


def _one(piece: _Piece, asked: Mapping[str, Any], env: Mapping[str, str], index: int | None) -> SubmitRequest:
    """Make the request of one job, which carries its own variables beside those that all jobs have."""
    own = {} if piece.task is None else {TASK: str(piece.task)}
    values = {**asked, "name": piece.name, "env": [*asked["env"].items(), *own.items()]}
    request = submission(piece.words, values, environ=env, index=index)
    return msgspec.structs.replace(request, env=own)


def _asked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the options by their names.  Raises CannotSubmit."""
    others: dict[str, Any] = {"env": dict(options.get("env", {})), "directory": os.fspath(options.get("chdir", ""))}
    jobs = tuple(job if isinstance(job, int) else job.id for job in options.get("after", ()))
    written = {name: value for name, value in options.items() if name not in ("after", "env", "chdir", "home")}
    for name in ("notify", "notify_on"):
        if name in written:
            written[name] = list(options[name])
    try:
        return from_python(written) | others | {"after": [(Dependency.OK, jobs)]}
    except ValueError as error:
        raise CannotSubmit(str(error)) from None
