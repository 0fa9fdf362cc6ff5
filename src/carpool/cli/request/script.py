"""Scripts with options for their submission: ``#CARPOOL --gpus 1`` among the comments at their beginning."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from carpool.cli.base.cli_error import Exit, Problem
from carpool.options.sbatch import translated
from carpool.options.slurm import NotTheSame

SUFFIXES = (".sh", ".bash", ".sbatch", ".slurm")
OWN, SLURM = "#CARPOOL", "#SBATCH"
LONGEST_HEAD = 64 * 1024
_LINE = re.compile(rf"({OWN}|{SLURM})(?:\s+(.*))?")


@dataclass(frozen=True, slots=True)
class Script:
    """``lines``: line numbers and options; ``command``: the words that run the script."""

    path: Path
    lines: list[tuple[int, list[str]]]
    command: list[str]


def script_of(word: str) -> Script | None:
    """Return the script that ``word`` names; None for other words, and for a script of another kind without options.

    Raises Problem for lines that cannot be understood.
    """
    path = Path(word)
    if not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(LONGEST_HEAD).decode(errors="replace").splitlines()
    lines = _options(path, head)
    if not lines and path.suffix not in SUFFIXES:
        return None
    return Script(path, lines, _command(path, head))


def _command(path: Path, head: list[str]) -> list[str]:
    """Return the interpreter of the first line with at most one argument, as the kernel would.  Raises Problem."""
    if head and head[0].startswith("#!") and head[0][2:].strip():
        return [*head[0][2:].strip().split(maxsplit=1), str(path.absolute())]
    if path.suffix == ".py":
        return [str(path)]
    raise Problem(
        Exit.USAGE, "no_interpreter", f"{path} does not say what runs the script", "begin the file with #!/bin/bash"
    )


def _options(path: Path, head: list[str]) -> list[tuple[int, list[str]]]:
    """Parse option lines before the first command; Slurm's lines count only if there are none of Carpool's."""
    end = next((n for n, line in enumerate(head) if line.strip() and not line.startswith("#")), len(head))
    ours = _marked(head, OWN)
    if late := [number for number, _ in ours if number > end]:
        raise _wrong(path, late[0], f"{OWN} has to stand before the first command of the script")
    return _split(path, ours) if ours else _from_slurm(path, _split(path, _marked(head[:end], SLURM)))


def _marked(head: list[str], marker: str) -> list[tuple[int, str]]:
    """Return the options behind a marker, with the numbers of their lines."""
    found = ((number, _LINE.fullmatch(line.rstrip())) for number, line in enumerate(head, 1))
    return [(number, match[2] or "") for number, match in found if match is not None and match[1] == marker]


def _split(path: Path, lines: list[tuple[int, str]]) -> list[tuple[int, list[str]]]:
    """Split options into words.  Raises Problem, which names the line."""
    found = []
    for number, options in lines:
        try:
            found.append((number, shlex.split(options, comments=True)))
        except ValueError as error:
            raise _wrong(path, number, str(error).lower()) from None
    return found


def _from_slurm(path: Path, lines: list[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """Translate lines of Slurm.  Raises Problem, with all lines that have to be changed."""
    made, refused = [], []
    for number, words in lines:
        try:
            made.append((number, translated(words)))
        except NotTheSame as error:
            refused.append(f"{path}:{number}: {error}")
        except ValueError as error:
            raise _wrong(path, number, str(error)) from None
    if refused:
        hint = f"remove these lines, or write {OWN} lines: then the {SLURM} lines are left to Slurm"
        raise Problem(Exit.USAGE, "other_meaning", "\n".join(refused), hint)
    return made


def _wrong(path: Path, number: int, text: str) -> Problem:
    return Problem(Exit.USAGE, "bad_script", f"{path}:{number}: {text}")
