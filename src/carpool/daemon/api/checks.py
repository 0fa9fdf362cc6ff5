"""Checks of texts, paths, arrays and numbers in requests, for jobs and for workers of models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import msgspec

from carpool.daemon.system.errors import RequestError
from carpool.options.requests import BOUNDS, out_of_bounds
from carpool.protocol import job_names
from carpool.protocol.api import SubmitManyRequest, SubmitRequest
from carpool.protocol.units import LARGEST

LONGEST_DIRECTORY = 4096  # bytes, as for the kernel


def check_texts(what: str, texts: Iterable[str], env: Mapping[str, str]) -> None:
    """Check that a process can be given these texts.  Raises RequestError 400.  ``what``: their name for people."""
    if "\0" in "".join((*texts, *env, *env.values())):
        raise RequestError(400, "bad_text", f"{what} or the environment contains a NUL character")
    if "" in env or "=" in "".join(env):
        raise RequestError(400, "bad_environment", "a name in the environment is empty or contains '='")


def check_directory(cwd: str) -> None:
    """Check that a path is absolute, and no longer than the kernel takes.  Raises RequestError 400.

    Whether the directory exists is found out when a process starts there with its owner's rights: a daemon of root
    would reveal files that are hidden from users, and a file system that does not answer would stop the daemon.
    """
    size = len(cwd.encode(errors="replace"))
    if size > LONGEST_DIRECTORY:
        text = f"the path of the directory has {size} bytes; {LONGEST_DIRECTORY} are allowed"
        raise RequestError(400, "bad_directory", text, "choose a directory with a shorter path")
    if not cwd.startswith("/"):
        raise RequestError(400, "bad_directory", f"the directory {cwd!r} is not absolute")


def check_own_files(spec: SubmitRequest) -> None:
    """Check the names of a job's output files, which only the shim, as the owner, opens.  Raises RequestError 400."""
    for name in filter(None, (spec.output, spec.error)):
        try:
            path = job_names.of_job(name, 1, None)
        except ValueError as error:
            raise RequestError(400, "bad_output", f"the file {name!r}: {error}") from None
        if len(job_names.of_job(name, LARGEST, LARGEST).encode(errors="replace")) > LONGEST_DIRECTORY:
            text = f"the name of a file has more than the {LONGEST_DIRECTORY} bytes that are allowed"
            raise RequestError(400, "bad_output", text, "choose a shorter path")
        if not path.startswith("/") or "\0" in path:
            raise RequestError(400, "bad_output", f"the file {name!r} is not an absolute path")
        if spec.foreground:
            raise RequestError(400, "output_foreground", "jobs in the foreground write to their terminal")


def _ascends(places: Sequence[int]) -> bool:
    return list(places) == sorted(set(places))


def check_arrays(many: SubmitManyRequest) -> None:
    """Check that arrays are disjoint lists of jobs, each with an index of its own.  Raises RequestError 400."""
    places = sorted(chain.from_iterable(many.arrays))
    apart, inside = all(many.arrays) and all(map(_ascends, [*many.arrays, places])), set(places)
    if not apart or not inside <= set(range(len(many.jobs))):
        raise RequestError(400, "bad_arrays", "an array is a list of positions of jobs, ascending, each in one array")
    for array in many.arrays:
        if None in (indices := {many.jobs[place].index for place in array}) or len(indices) < len(array):
            raise RequestError(400, "bad_arrays", "each job of an array has an index of its own")
    for place, job in enumerate(many.jobs):
        if job.array_limit and place not in inside:
            raise RequestError(400, "bad_arrays", f"job {place + 1} has array_limit, and is in no array")


def check_numbers(spec: msgspec.Struct, bounds: Mapping[str, int] = BOUNDS) -> None:
    """Check that each field is null, or between its least value and 2^63 - 1.  Raises RequestError 400."""
    for name, value, least in out_of_bounds(spec, bounds):
        raise RequestError(400, f"bad_{name}", f"{name} is {value}; it must be at least {least} (and below 2^63)")
