"""Variables of jobs: the files of ``--env-file``, and those by which a virtual environment is active."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from carpool.cli.base.cli_error import Exit, Problem
from carpool.options.codecs import variable
from carpool.protocol.paths import expanded

EXPORT = "export "
_HOMES = ("miniforge3", "miniconda3", "mambaforge", "anaconda3")


def from_files(names: Sequence[str]) -> dict[str, str]:
    """Return the variables of all files; where several files have a variable, the last one counts.  Raises Problem."""
    return dict(found for name in names for found in _from_file(name))


def _from_file(name: str) -> list[tuple[str, str]]:
    try:
        lines = expanded(name).read_text().splitlines()
    except OSError as error:
        raise Problem(Exit.NOT_FOUND, "bad_env_file", f"--env-file {name}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise Problem(Exit.USAGE, "bad_env_file", f"--env-file {name}: it is not UTF-8") from None
    return [_of_line(name, number, line.strip()) for number, line in enumerate(lines, 1) if _says_something(line)]


def _says_something(line: str) -> bool:
    return bool(line.strip()) and not line.strip().startswith("#")


def _of_line(name: str, number: int, line: str) -> tuple[str, str]:
    """Parse a line; quotes around a value are taken off, and no other syntax of a shell is understood."""
    try:
        key, value = variable(line.removeprefix(EXPORT).lstrip())
    except ValueError as error:
        raise Problem(Exit.USAGE, "bad_env_file", f"{name}:{number}: {error}") from None
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return key, value[1:-1] if quoted else value


def in_venv(env: Mapping[str, str], prefix: Path) -> dict[str, str]:
    """Return ``env`` as activated for a virtual environment.  Raises ValueError, for people, if there is none."""
    if not os.access(prefix / "bin" / "python", os.X_OK):
        raise ValueError(f"{prefix} is not a virtual environment: it has no bin/python")
    return _active(env, prefix) | {"VIRTUAL_ENV": str(prefix)}


def in_conda(env: Mapping[str, str], where: str, base: Path) -> dict[str, str]:
    """``where``: a conda prefix (with a slash; relative to ``base``) or a name.  Raises ValueError, for people."""
    prefix = base / expanded(where) if "/" in where else _by_name(env, where)
    if not (prefix / "bin").is_dir():
        raise ValueError(f"{prefix} is not a conda environment: it has no bin")
    return _active(env, prefix) | {"CONDA_PREFIX": str(prefix), "CONDA_DEFAULT_ENV": where}


def _active(env: Mapping[str, str], prefix: Path) -> dict[str, str]:
    left_out = ("VIRTUAL_ENV", "PYTHONHOME", "CONDA_PREFIX", "CONDA_DEFAULT_ENV")
    kept = {name: value for name, value in env.items() if name not in left_out}
    return kept | {"PATH": os.pathsep.join([str(prefix / "bin"), env.get("PATH", os.defpath)])}


def _by_name(env: Mapping[str, str], name: str) -> Path:
    places = [root if name == "base" else root / "envs" / name for root in _roots(env)]
    if name != "base":
        places = [Path(path) / name for path in env.get("CONDA_ENVS_PATH", "").split(os.pathsep) if path] + places
    for place in places:
        if place.is_dir():
            return place
    looked = ", ".join(map(str, places)) or "nowhere: neither CONDA_ROOT nor CONDA_EXE is set"
    raise ValueError(f"there is no conda environment {name!r} (looked for {looked})")


def _roots(env: Mapping[str, str]) -> Iterator[Path]:
    """Yield installations of conda: that of ``$CONDA_ROOT``, else the active one, then those in the usual places."""
    if env.get("CONDA_ROOT"):
        yield Path(env["CONDA_ROOT"])
        return
    if env.get("CONDA_EXE"):
        yield Path(env["CONDA_EXE"]).parent.parent
    if env.get("MAMBA_ROOT_PREFIX"):
        yield Path(env["MAMBA_ROOT_PREFIX"])
    home = env.get("HOME")
    if home:
        yield from (Path(home) / name for name in _HOMES if (Path(home) / name).is_dir())
