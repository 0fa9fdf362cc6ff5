"""From a job file, or a command with a grid, to the one request that submits all of it or nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from carpool.cli.base.cli_error import Problem
from carpool.cli.base.exit_codes import Exit
from carpool.cli.request.job_file import JobFile
from carpool.cli.request.job_options import captured_environment, submission
from carpool.cli.request.sweep import PREFIX, Grid, check_size, combinations, filled, named, variables
from carpool.cli.request.venv_environment import in_conda, in_venv
from carpool.protocol.api import AUTO, SubmitManyRequest, SubmitRequest
from carpool.protocol.paths import expanded
from carpool.protocol.spelling import did_you_mean

#: Keys of a job file and the options of `carpool submit` that say the same.
_OPTIONS = {
    "name": "name",
    "iterations": "iterations",
    "duration": "duration_us",
    "memory": "memory",
    "weight": "weight",
    "device": "device",
    "gpus": "gpus",
    "exclusive": "exclusive",
    "engine": "engine",
    "retries": "retries",
    "requeue": "requeue",
}
#: What can be wrong with a request, and the key that says it; all else is about the command.
_BLAMED = {"bad_device": "device", "missing_directory": "directory"}


def from_command(grid: Grid, words: Sequence[str], name: str, **options: Any) -> SubmitManyRequest:
    """A job for each combination.  Raises Problem."""
    _check_size([grid])
    base = _base_environment()
    requests = [
        submission(
            words=[filled(word, values) for word in words],
            name=named(name, values),
            environ=base | variables(values),
            **options,
        )
        for values in combinations(grid)
    ]
    return _request(requests, [])


def from_file(file: JobFile, grid: Grid, chosen: Mapping[str, Any]) -> SubmitManyRequest:
    """``chosen``: options that were given beside the file, and count for all its jobs.  Raises Problem."""
    grids = [job.get("param", {}) | grid for job in file.jobs]
    _check_size(grids)
    base = _base_environment()
    requests: list[SubmitRequest] = []
    follows: list[list[int]] = []
    places: dict[str, list[int]] = {}
    for number, (job, its) in enumerate(zip(file.jobs, grids, strict=True)):
        env = _environment(file, number, base)
        ids, positions = _after(file, number, places)
        own = []
        for values in combinations(its):
            own.append(len(requests))
            requests.append(_one(file, number, env, values, ids, chosen))
            follows.append(positions)
        if job.get("name"):
            places.setdefault(job["name"], []).extend(own)
    return _request(requests, follows)


def _one(
    file: JobFile, number: int, env: dict[str, str], values: dict[str, str], ids: list[int], chosen: Mapping[str, Any]
) -> SubmitRequest:
    job = file.jobs[number]
    own = {name: filled(value, values) for name, value in job.get("environment", {}).items()}
    options: dict[str, Any] = {"iterations": None, "duration_us": None, "memory": None, "weight": 100, "device": None}
    options |= {"gpus": 1, "exclusive": False, "engine": AUTO, "retries": 0, "requeue": False, "name": ""}
    options |= {option: job[key] for key, option in _OPTIONS.items() if key in job}
    directory = file.path.parent.absolute() / expanded(filled(job.get("directory", ""), values))
    options |= {"directory": str(directory), "after": [ids]} | dict(chosen)
    options["name"] = named(options["name"], values)
    words = [filled(word, values) for word in job["command"]]
    try:
        return submission(words=words, environ=env | own | variables(values), **options)
    except Problem as problem:
        key = _BLAMED.get(problem.info.code, "command")
        if key in chosen:  # said beside the file
            raise
        raise file.problem(number, key, problem.info.message, problem.exit_code, problem.info.hint) from None


def _base_environment() -> dict[str, str]:
    """Of this process, without the parameters of a job that submits another one."""
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


def _after(file: JobFile, number: int, places: Mapping[str, list[int]]) -> tuple[list[int], list[int]]:
    """Ids of jobs that are there already, and positions of those of this file."""
    wanted = file.jobs[number].get("after", ())
    for name in wanted:
        if isinstance(name, str) and name not in places:
            raise file.problem(
                number,
                "after",
                f"after: no job above this one is called {name!r}",
                hint=did_you_mean(name, places).strip(),
            )
    ids = [item for item in wanted if isinstance(item, int)]
    return ids, sorted({place for item in wanted if isinstance(item, str) for place in places[item]})


def _check_size(grids: Sequence[Grid]) -> None:
    try:
        check_size(grids)
    except ValueError as error:
        raise Problem(Exit.USAGE, "too_many_jobs", str(error), "submit them in several parts") from None


def _request(requests: list[SubmitRequest], follows: list[list[int]]) -> SubmitManyRequest:
    """What all environments have in common is sent once."""
    first = requests[0].env
    common = {
        name: value for name, value in first.items() if all(request.env.get(name) == value for request in requests)
    }
    return SubmitManyRequest([_without(request, common) for request in requests], common, follows)


def _without(request: SubmitRequest, common: Mapping[str, str]) -> SubmitRequest:
    import msgspec

    own = {name: value for name, value in request.env.items() if name not in common}
    return msgspec.structs.replace(request, env=own)
