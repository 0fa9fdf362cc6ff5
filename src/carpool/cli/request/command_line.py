"""Conversion of the typed words to the job's command, which is checked at submission, not when the job starts."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from carpool.cli.base.cli_error import Exit, Problem

SHELL = "/bin/sh"
#: How much of a file shells look at, to tell a text from a program.
HEAD_BYTES = 128
SHELL_CHARACTERS = "|&;<>$`*?~(){}#\n"


def resolve_command(words: Sequence[str], directory: Path, env: Mapping[str, str]) -> list[str]:
    """Return the argument vector that runs ``words`` in ``directory``.  Raises Problem if nothing can be run.

    A ``script.py`` that is not a program of its own runs with a Python: that of the active virtual environment, else
    the PATH's ``python3`` or ``python``, else Carpool's own.  A program that is a text without ``#!`` is run by sh, as
    shells do.  Everything else is run as it is.
    """
    if not words or not words[0]:
        raise Problem(
            Exit.USAGE, "empty_command", "there is no command to run", "for example: carpool submit -- python train.py"
        )
    first = words[0]
    path = directory / first
    if _needs_python(first, path):
        return [python_for(env), *words]
    if len(words) == 1 and not path.exists() and (hint := _line_hint(first)):
        raise Problem(Exit.NOT_FOUND, "command_not_found", f"there is no program {first!r}", hint)
    program = _program(first, path, env)
    return [SHELL, str(program), *words[1:]] if _is_text_for_sh(program) else list(words)


def _needs_python(first: str, path: Path) -> bool:
    """Whether the word names a script that is not a program of its own."""
    if not first.endswith(".py") or not path.is_file():
        return False
    return "/" not in first or not os.access(path, os.X_OK) or _is_text_for_sh(path)


def _is_text_for_sh(program: Path) -> bool:
    """Whether the kernel would refuse the program (ENOEXEC), and a shell would read it."""
    try:
        fd = os.open(program, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:  # a program that may be run need not be readable
        return False
    with open(fd, "rb") as file:
        head = file.read(HEAD_BYTES) if stat.S_ISREG(os.fstat(fd).st_mode) else b"#!"
    return not head.startswith(b"#!") and b"\0" not in head


def _line_hint(word: str) -> str:
    """Return a hint for a whole command line that was given as one word; empty for any other word."""
    if any(character in word for character in SHELL_CHARACTERS):
        return f"no shell runs the command; to have one run it: carpool submit -- bash -c {shlex.quote(word)}"
    return f"leave out the quotes around it: carpool submit -- {word}" if len(word.split()) > 1 else ""


def python_for(env: Mapping[str, str]) -> str:
    """Return the Python that the user would get by typing ``python`` in an activated environment."""
    if env.get("VIRTUAL_ENV"):
        python = Path(env["VIRTUAL_ENV"]) / "bin" / "python"
        if os.access(python, os.X_OK):
            return str(python)
    search = env.get("PATH", os.defpath)
    return shutil.which("python3", path=search) or shutil.which("python", path=search) or sys.executable


def _program(first: str, path: Path, env: Mapping[str, str]) -> Path:
    """Return the file of the program.  Raises Problem where no file can be run."""
    if "/" in first:
        _check_file(first, path)
        return path
    found = shutil.which(first, path=env.get("PATH", os.defpath))
    if found is None:
        hint = "check its spelling, or activate its environment first"
        if path.is_file():
            hint = f"to run the file in this directory: ./{first}"
        elif first.endswith(".py"):
            hint = f"nor is there a script {path}"
        raise Problem(Exit.NOT_FOUND, "command_not_found", f"there is no command {first!r} in PATH", hint)
    return Path(found)


def _check_file(first: str, path: Path) -> None:
    if not path.exists():
        raise Problem(Exit.NOT_FOUND, "command_not_found", f"there is no file {first}", f"looked for {path}")
    if path.is_dir():
        raise Problem(Exit.USAGE, "not_a_command", f"{first} is a directory", "give the program or script inside it")
    if not os.access(path, os.X_OK):
        raise Problem(
            Exit.REFUSED, "not_executable", f"{first} is not executable", f"chmod +x {first}, or name its interpreter"
        )
