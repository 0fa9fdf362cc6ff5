"""The files of ``--env-file``: variables beside those of the shell that submits."""

from __future__ import annotations

from collections.abc import Sequence

from carpool.cli.base.cli_error import Exit, Problem
from carpool.options.codecs import variable
from carpool.protocol.paths import expanded

EXPORT = "export "


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
