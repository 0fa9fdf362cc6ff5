"""Rehearse a command: the script that the command names, unchanged, until its first optimizer steps."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from carpool.estimate.base import CannotEstimate

_WITH_VALUE = ("-W", "-X")
OTHERWISE = "describe the model instead: carpool estimate --model FILE.py:FUNCTION --batch-size N --input 3x224x224"


def script_of(command: Sequence[str]) -> tuple[str, list[str]]:
    """Return what Python would run, a path or ``-m``, and the arguments behind it.  Raises CannotEstimate."""
    words = list(command)
    if words and not words[0].endswith(".py"):
        words = _behind_options(words)
    if not words:
        raise CannotEstimate("the command runs no Python script", OTHERWISE)
    return words[0], words[1:]


def _behind_options(words: list[str]) -> list[str]:
    if not Path(words[0]).name.startswith("python"):
        raise CannotEstimate(f"{words[0]} is not Python: what it will allocate cannot be rehearsed", OTHERWISE)
    index = 1
    while index < len(words) and words[index].startswith("-"):
        if words[index] == "-m":
            return ["-m", *words[index + 1 :]]
        if words[index] == "-c" or words[index] == "-":
            raise CannotEstimate(f"a program given by `{words[index]}` cannot be rehearsed", "put it into a file")
        index += 2 if words[index] in _WITH_VALUE else 1
    return words[index:]


def player(command: Sequence[str], directory: str) -> Callable[[], object]:
    """Return a function that runs the command's script in this process.  Raises CannotEstimate."""
    script, arguments = script_of(command)
    os.chdir(directory or ".")
    if script == "-m":
        if not arguments:
            raise CannotEstimate("`python -m` names no module", OTHERWISE)
        sys.path[0] = str(Path.cwd())
        sys.argv = arguments
        return lambda: runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    path = Path(script)
    if not path.is_file():
        raise CannotEstimate(f"there is no script {path}", "check the path, or give --chdir")
    sys.path[0] = str(path.resolve().parent)
    sys.argv = [script, *arguments]
    return lambda: runpy.run_path(script, run_name="__main__")
