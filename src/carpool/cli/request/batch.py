"""From a job file, or a command with a grid, to one request that submits all jobs or none."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from carpool.cli.base.cli_error import Problem
from carpool.cli.base.exit_codes import Exit
from carpool.cli.request.array_range import ArrayRange
from carpool.cli.request.job_file import JobFile
from carpool.cli.request.job_options import captured_environment, submission
from carpool.cli.request.start_conditions import Dependencies, dependency
from carpool.cli.request.sweep import Grid, check_size, combinations, filled, named
from carpool.cli.request.venv_environment import in_conda, in_venv
from carpool.core.model import Dependency, Engine
from carpool.protocol.api import SubmitManyRequest, SubmitRequest
from carpool.protocol.job_variables import PREFIX
from carpool.protocol.paths import expanded
from carpool.protocol.spelling import did_you_mean

#: Keys of a job file, and the options of `carpool submit` with the same meaning.
_OPTIONS = {
    "name": "name",
    "iterations": "iterations",
    "expect": "duration_us",
    "time": "time_us",
    "device_time": "device_time_us",
    "signal": "limit_signal",
    "memory": "memory",
    "weight": "weight",
    "device": "device",
    "gpus": "gpus",
    "exclusive": "exclusive",
    "engine": "engine",
    "retries": "retries",
    "requeue": "requeue",
    "output": "output",
    "error": "error",
    "begin": "begin_us",
    "hold": "hold",
    "group": "group",
    "notify": "notify",
    "notify_on": "notify_on",
}
#: Options that name files to write to.
FILES = ("output", "error")
#: Errors of a request, and the key of a job file that causes each; all other errors are about the command.
_BLAMED = {"bad_device": "device", "missing_directory": "directory", "bad_output": "output", "bad_error": "error"}
_BLAMED["nobody_to_notify"] = "notify_on"


def from_command(grid: Grid, words: Sequence[str], name: str, **options: Any) -> SubmitManyRequest:
    """Make a job for each combination.  Raises Problem."""
    _check_size([grid])
    base = _base_environment()
    files = {key: options.pop(key) for key in FILES}
    requests = [
        submission(
            words=[filled(word, values) for word in words],
            name=named(name, values),
            environ=base,
            parameters=values,
            index=index if _several(grid) else None,
            **_filled_names(files, values),
            **options,
        )
        for index, values in enumerate(combinations(grid))
    ]
    return _request(requests, {}, [list(range(len(requests)))] if len(requests) > 1 else [])


def from_array(array: ArrayRange, words: Sequence[str], **options: Any) -> SubmitManyRequest:
    """Make a job for each index.  Raises Problem."""
    base = _base_environment()
    jobs = [
        submission(words=words, environ=base, index=index, array_limit=array.at_most, **options)
        for index in array.indices
    ]
    return _request(jobs, {}, [list(range(len(jobs)))])


def from_file(file: JobFile, grid: Grid, chosen: Mapping[str, Any]) -> SubmitManyRequest:
    """Make the jobs of a file.  ``chosen``: options given beside the file, which hold for all jobs.  Raises Problem."""
    grids = [job.get("param", {}) | grid for job in file.jobs]
    _check_size(grids)
    base = _base_environment()
    requests: list[SubmitRequest] = []
    follows: dict[Dependency, list[list[int]]] = {kind: [] for kind in Dependency}
    places: dict[str, list[int]] = {}
    arrays: list[list[int]] = []
    for number, (job, its) in enumerate(zip(file.jobs, grids, strict=True)):
        env = _environment(file, number, base)
        activated = {name: value for name, value in env.items() if base.get(name) != value}
        ids, positions = _after(file, number, places)
        own = []
        for index, values in enumerate(combinations(its)):
            own.append(len(requests))
            beside = dict(chosen) | {"index": index if _several(its) else None, "activated": activated}
            requests.append(_one(file, number, env, values, ids, beside))
            for kind, befores in follows.items():
                befores.append(positions.get(kind, []))
        if len(own) > 1:
            arrays.append(own)
        if job.get("name"):
            places.setdefault(job["name"], []).extend(own)
    return _request(requests, follows, arrays)


def _one(
    file: JobFile,
    number: int,
    env: dict[str, str],
    values: dict[str, str],
    ids: Sequence[Dependencies],
    chosen: Mapping[str, Any],
) -> SubmitRequest:
    job = file.jobs[number]
    own = {name: filled(value, values) for name, value in job.get("environment", {}).items()}
    options: dict[str, Any] = {"iterations": None, "duration_us": None, "memory": None, "weight": 100, "device": None}
    options |= {"time_us": None, "device_time_us": None, "limit_signal": None}
    options |= {"gpus": 1, "exclusive": False, "engine": Engine.GRANT.value, "retries": 0, "requeue": False, "name": ""}
    options |= {option: job[key] for key, option in _OPTIONS.items() if key in job}
    directory = file.path.parent.absolute() / expanded(filled(job.get("directory", ""), values))
    options |= {"directory": str(directory), "after": ids} | dict(chosen)
    options["name"], options["given"] = named(options["name"], values), list(own)
    options |= _filled_names({key: options.get(key) for key in FILES}, values)
    words = [filled(word, values) for word in job["command"]]
    try:
        return submission(words=words, environ=env | own, parameters=values, **options)
    except Problem as problem:
        key = _BLAMED.get(problem.info.code, "command")
        if key in chosen or _OPTIONS.get(key) in chosen:  # given beside the file
            raise
        raise file.problem(number, key, problem.info.message, problem.exit_code, problem.info.hint) from None


def _several(grid: Grid) -> bool:
    return math.prod(len(values) for values in grid.values()) > 1


def _filled_names(names: Mapping[str, str | None], values: Mapping[str, str]) -> dict[str, Any]:
    """Fill values of parameters into names of files, each value as one part of a path."""
    parts = {key: value.replace("/", "_").replace("%", "%%") for key, value in values.items()}
    return {key: None if name is None else filled(name, parts) for key, name in names.items()}


def _base_environment() -> dict[str, str]:
    """Return this process's environment, without the parameters of a job that submits another job."""
    environ = captured_environment(os.environ)
    return {name: value for name, value in environ.items() if not name.startswith(PREFIX)}


def _environment(file: JobFile, number: int, base: dict[str, str]) -> dict[str, str]:
    job, here = file.jobs[number], file.path.parent.absolute()
    key = "venv" if "venv" in job else "conda"
    try:
        if "venv" in job:
            return in_venv(base, here / expanded(job["venv"]))
        return in_conda(base, job["conda"], here) if "conda" in job else base
    except ValueError as error:
        raise file.problem(number, key, f"{key}: {error}") from None


def _after(
    file: JobFile, number: int, places: Mapping[str, list[int]]
) -> tuple[list[Dependencies], dict[Dependency, list[int]]]:
    """Return ids of jobs submitted before, and positions of jobs in this file, by how these jobs have to end."""
    ids: list[Dependencies] = []
    positions: dict[Dependency, set[int]] = {}
    for item in file.jobs[number].get("after", ()):
        kind, name = (Dependency.OK, item) if item in places else _dependency(file, number, item)
        if isinstance(name, int):
            ids.append((kind, (name,)))
        elif name in places:
            positions.setdefault(kind, set()).update(places[name])
        else:
            hint = did_you_mean(name, places).strip()
            raise file.problem(number, "after", f"after: no job above this one is called {name!r}", hint=hint)
    return ids, {kind: sorted(found) for kind, found in positions.items()}


def _dependency(file: JobFile, number: int, item: int | str) -> tuple[Dependency, int | str]:
    """Split an ``after`` into its kind and a name or an id; a number is an id by itself or behind a colon."""
    if isinstance(item, int):
        return Dependency.OK, item
    try:
        kind, rest = dependency(item)
    except ValueError as error:
        raise file.problem(number, "after", f"after: {error}") from None
    return kind, int(rest) if ":" in item and rest.isdecimal() else rest


def _check_size(grids: Sequence[Grid]) -> None:
    try:
        check_size(grids)
    except ValueError as error:
        raise Problem(Exit.USAGE, "too_many_jobs", str(error), "submit them in several parts") from None


def _request(
    requests: list[SubmitRequest], follows: Mapping[Dependency, list[list[int]]], arrays: list[list[int]]
) -> SubmitManyRequest:
    """Make the request; variables that all environments have in common are sent once."""
    _check_files(requests)
    first = requests[0].env
    common = {
        name: value for name, value in first.items() if all(request.env.get(name) == value for request in requests)
    }
    ok, ended, notok = (lists if any(lists := follows.get(kind, [])) else [] for kind in Dependency)
    return SubmitManyRequest([_without(request, common) for request in requests], common, ok, ended, notok, arrays)


def _check_files(requests: Sequence[SubmitRequest]) -> None:
    """Check that no two jobs write to one file: jobs of one submission start together.  Raises Problem."""
    names = [name for request in requests for name in {request.output, request.error} if name and "%j" not in name]
    if len(set(names)) < len(names):
        shown = next(name for number, name in enumerate(names) if name in names[:number]).replace("%%", "%")
        hint = "put %j (the id), %a (the index) or a {parameter} into the name"
        raise Problem(Exit.USAGE, "same_output", f"several jobs would write to {shown}", hint)


def _without(request: SubmitRequest, common: Mapping[str, str]) -> SubmitRequest:
    import msgspec

    own = {name: value for name, value in request.env.items() if name not in common}
    return msgspec.structs.replace(request, env=own)
