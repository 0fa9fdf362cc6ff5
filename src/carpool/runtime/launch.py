"""The environment that turns a command into a Carpool job.  The command itself is not changed."""

from __future__ import annotations

import os
import re
from pathlib import Path

from . import native

#: Variables that mark a process as part of a job; those of another job never leak into a new one.
JOB_VARIABLES = (
    *("CARPOOL_JOB", "CARPOOL_JOB_FD", "CARPOOL_JOB_PID", "CARPOOL_HOME", "CARPOOL_CUDA_DEVICE", "CARPOOL_ENGINE"),
    *("CARPOOL_JOIN", "CARPOOL_JOIN_OPTIONS", "CARPOOL_JOIN_TOKEN"),
    *("CARPOOL_POD_OPTIONS", "CARPOOL_POD_NAME"),  # given by pods
)
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "MKL_NUM_THREADS")
#: The variables of `joining_variables` that jobs of shims have as well.
_GIVEN = ("LD_PRELOAD", "PYTHONPATH", "OMP_WAIT_POLICY", "CUDA_VISIBLE_DEVICES", "CARPOOL_CUDA_DEVICE")


class LaunchError(Exception):
    """A job cannot be started like this; the text gives the reason and what to do."""


def disabled(env: dict[str, str]) -> bool:
    """Whether the user asked for a plain process: ``CARPOOL_DISABLE=1`` in the job's environment."""
    return env.get("CARPOOL_DISABLE", "") not in ("", "0")


def site_directory() -> Path:
    """The directory whose ``sitecustomize`` every Python of a job runs at its start."""
    return Path(__file__).resolve().parent / "site"


def job_environment(
    env: dict[str, str],
    *,
    home: str,
    job: int,
    job_fd: int,
    threads: int | None,
    cuda_device: str = "",
    engine: bool = False,
) -> dict[str, str]:
    """Return the environment of job ``job``, made from the one its user submitted it with; ``env`` stays as it is.

    ``job_fd`` is the job's end of its channel, as the job inherits it.  ``threads`` bounds the threads of a parallel
    region; None leaves the user's settings alone.  ``cuda_device`` has the uuids of the job's GPUs, if it runs on any:
    the job sees no other GPUs.  All memory of an ``engine`` is persistent.  Raises `LaunchError` if libcarpool is
    missing or cannot be preloaded.
    """
    library, site = str(native.library_path()), str(site_directory())
    result = outside_of_jobs(env)
    if disabled(env):
        return result
    _check_paths(library, site)
    _set_path(result, "LD_PRELOAD", [library, *_without(library, result.get("LD_PRELOAD"))])
    _set_path(result, "PYTHONPATH", [site, *_without(site, result.get("PYTHONPATH"))])
    result.update(CARPOOL_HOME=home, CARPOOL_JOB=str(job), CARPOOL_JOB_FD=str(job_fd))
    # Threads that spin while they wait take the processor from the job whose turn it is (5x slower, measured).
    result["OMP_WAIT_POLICY"] = "passive"
    if cuda_device:
        # CARPOOL_CUDA_DEVICE is for libcarpool: scripts overwrite CUDA_VISIBLE_DEVICES.
        result.update(CUDA_VISIBLE_DEVICES=cuda_device, CARPOOL_CUDA_DEVICE=cuda_device)
    if engine:
        result["CARPOOL_ENGINE"] = "1"
    if threads is not None:
        result.update((name, _bounded(result.get(name), threads)) for name in THREAD_VARIABLES)
    return result


def joining_variables(
    env: dict[str, str], *, socket: str, options: str, token: str, threads: int | None, cuda_device: str = ""
) -> dict[str, str]:
    """Return the variables that make a process join if it starts with ``env`` and these; other variables stay.

    ``socket``: the path of the daemon's session socket; the rest is as in `job_environment`.  Raises `LaunchError`.
    """
    outside = outside_of_jobs(env) | {"CARPOOL_DISABLE": ""}
    made = job_environment(outside, home="", job=0, job_fd=0, threads=threads, cuda_device=cuda_device)
    given = {name: made[name] for name in (*_GIVEN, *THREAD_VARIABLES) if name in made}
    return given | {"CARPOOL_JOIN": socket, "CARPOOL_JOIN_OPTIONS": options, "CARPOOL_JOIN_TOKEN": token}


def plain_environment(env: dict[str, str]) -> dict[str, str]:
    """Return the environment of a process that is not a job, but can import this copy of Carpool as jobs can."""
    site, result = str(site_directory()), outside_of_jobs(env)
    _set_path(result, "PYTHONPATH", [site, *_without(site, result.get("PYTHONPATH"))])
    result.update(CARPOOL_DISABLE="1", OMP_WAIT_POLICY="passive")
    return result


def outside_of_jobs(env: dict[str, str]) -> dict[str, str]:
    """Return ``env`` without the variables and paths of a job, which an environment captured inside a job contains."""
    library, site = str(native.library_path()), str(site_directory())
    result = {name: value for name, value in env.items() if name not in JOB_VARIABLES}
    _set_path(result, "LD_PRELOAD", _without(library, result.get("LD_PRELOAD")))
    _set_path(result, "PYTHONPATH", _without(site, result.get("PYTHONPATH")))
    return result


def _check_paths(library: str, site: str) -> None:
    if not os.access(library, os.R_OK):
        raise LaunchError(f"libcarpool is missing: {library} cannot be read; build it with `make native`")
    if re.search(r"[:\s$]", library) or ":" in site:
        raise LaunchError(
            f"Carpool is installed under a path that the dynamic linker cannot preload from: {library}; "
            "install it under a path without spaces, colons and dollar signs"
        )


def _without(path: str, value: str | None) -> list[str]:
    """Return the entries of a search path other than ``path``.  Empty entries mean the current directory and stay."""
    return [entry for entry in value.split(":") if entry != path] if value else []


def _set_path(env: dict[str, str], name: str, entries: list[str]) -> None:
    if entries:
        env[name] = ":".join(entries)
    else:
        env.pop(name, None)


def _bounded(value: str | None, threads: int) -> str:
    """Return ``value`` with every number above ``threads`` lowered (OpenMP allows one number per nesting level)."""
    try:
        levels = [int(level) for level in (value or "").split(",")]
    except ValueError:
        return str(threads)
    return ",".join(str(min(level, threads) if level > 0 else threads) for level in levels)
