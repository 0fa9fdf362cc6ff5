"""Conversion of a job file, or of a command with a grid, to one request that submits all jobs or none."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.request.job_file import JobFile
from carpool.cli.request.job_options import captured_environment, submission
from carpool.cli.request.output_files import FILES
from carpool.cli.request.sweep import Grid, check_size, combinations, filled, named
from carpool.cli.request.variables import in_conda, in_venv
from carpool.core.model import Dependency
from carpool.core.spelling import did_you_mean
from carpool.options.arrays import ArrayRange
from carpool.options.codecs import Dependencies, dependency
from carpool.protocol.api import SubmitManyRequest, SubmitRequest
from carpool.protocol.environment import PARAMETER_PREFIX
from carpool.protocol.paths import expanded

#: Errors of a request, and the key of a job file that causes each; all other errors are about the command.
_BLAMED = {"missing_directory": "directory", "bad_output": "output", "bad_error": "error"}
_BLAMED["nobody_to_notify"] = "notify_on"


def from_command(grid: Grid, words: Sequence[str], asked: Mapping[str, Any]) -> SubmitManyRequest:
    """Make a job for each combination.  Raises Problem."""
    _check_size([grid])
    base = _base_environment()
    requests = [
        submission(
            [filled(word, values) for word in words],
            _with_values(asked, values),
            environ=base,
            parameters=values,
            index=index if _several(grid) else None,
        )
        for index, values in enumerate(combinations(grid))
    ]
    return _request(requests, {}, [list(range(len(requests)))] if len(requests) > 1 else [])


def from_array(array: ArrayRange, words: Sequence[str], asked: Mapping[str, Any]) -> SubmitManyRequest:
    """Make a job for each index.  Raises Problem."""
    base = _base_environment()
    jobs = [submission(words, asked, environ=base, index=index, array_limit=array.at_most) for index in array.indices]
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
        ids, positions = _after(file, number, places)
        made = _element_requests(file, number, its, base, {"after": ids, **chosen})
        own = list(range(len(requests), len(requests) + len(made)))
        requests += made
        for kind, earlier in follows.items():
            earlier += [positions.get(kind, [])] * len(made)
        if len(own) > 1:
            arrays.append(own)
        if job.get("name"):
            places.setdefault(job["name"], []).extend(own)
    return _request(requests, follows, arrays)


def _element_requests(
    file: JobFile, number: int, grid: Grid, base: dict[str, str], chosen: Mapping[str, Any]
) -> list[SubmitRequest]:
    """Make the requests of one [[job]] of a file: one for each combination of its grid."""
    env = _environment(file, number, base)
    active = dict(env.items() - base.items())
    make = partial(_one, file, number, chosen=chosen, environ=env, activated=active)
    several = _several(grid)
    return [make(parameters=each, index=n if several else None) for n, each in enumerate(combinations(grid))]


def _one(
    file: JobFile,
    number: int,
    chosen: Mapping[str, Any],
    environ: dict[str, str],
    parameters: dict[str, str],
    **about: Any,
) -> SubmitRequest:
    """Make the request of one job of a file; ``about``: further keywords of `submission`."""
    job = file.jobs[number]
    own = {name: filled(value, parameters) for name, value in job.get("environment", {}).items()}
    directory = file.path.parent.absolute() / expanded(filled(job.get("directory", ""), parameters))
    asked = _with_values({**job, "directory": str(directory), **chosen}, parameters)
    words = [filled(word, parameters) for word in job["command"]]
    try:
        return submission(words, asked, environ=environ | own, given=list(own), parameters=parameters, **about)
    except Problem as problem:
        key = _BLAMED.get(problem.info.code, "command")
        if key in chosen:  # given beside the file
            raise
        raise file.problem(number, key, problem.info.message, problem.exit_code, problem.info.hint) from None


def _several(grid: Grid) -> bool:
    return math.prod(len(values) for values in grid.values()) > 1


def _with_values(asked: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    """Fill values of parameters into the name and into names of files, each value as one part of a path."""
    parts = {key: value.replace("/", "_").replace("%", "%%") for key, value in values.items()}
    files = {key: filled(asked[key], parts) for key in FILES if asked.get(key) is not None}
    return {**asked, **files, "name": named(asked.get("name", ""), values)}


def _base_environment() -> dict[str, str]:
    """Return this process's environment, without the parameters of a job that submits another job."""
    environ = captured_environment(os.environ)
    return {name: value for name, value in environ.items() if not name.startswith(PARAMETER_PREFIX)}


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
