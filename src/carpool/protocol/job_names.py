"""The name of a job that was given none, and the names of files that jobs write to.

A job is called by its script and arguments, without the interpreter and without directories.  Names of files have
placeholders that are filled later (``run-%j.out``) and whose codes are Slurm's: the command line fills all but the
numbers of the job and its array, which the daemon assigns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from carpool.core.units import job_number

__all__ = ["command_name", "job_number", "program_name"]

_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*|(?:ba|da|z|k)?sh")
#: Options of interpreters that take no argument; the next word may be the script.
_FLAGS = re.compile(r"-[aBbdEefhIiOPqSsuvx]+")


def command_name(command: Sequence[str]) -> str:
    """Return the name of a command; empty for no command, as of another user's job.

    `words.js` of the dashboard does the same.

    >>> command_name(["/opt/venv/bin/python3", "-u", "/home/ada/train.py", "--lr", "0.1"])
    'train.py --lr 0.1'
    >>> command_name(["/opt/venv/bin/python3", "-m", "vision.train"]), command_name(["sh", "-c", "true"])
    ('python3 -m vision.train', 'sh -c true')
    """
    return " ".join(_shown(command))


def program_name(command: Sequence[str]) -> str:
    """Return the script or program alone, without directories."""
    return _file(_shown(command)[0]) if command else ""


def _shown(command: Sequence[str]) -> list[str]:
    if not command:
        return []
    words = [_short(command[0]), *command[1:]]
    if words[0] == "env" and len(words) > 1 and _INTERPRETER.fullmatch(_file(words[1])):
        return _shown(words[1:])
    script = next((n for n, word in enumerate(words[1:], 1) if not _FLAGS.fullmatch(word)), None)
    if script is None or words[script][:1] in ("", "-") or not _INTERPRETER.fullmatch(_file(words[0])):
        return words
    return [_short(words[script]), *words[script + 1 :]]


def _short(word: str) -> str:
    """Shorten an absolute path, which the user often did not type, to its name; a relative path stays as typed."""
    return _file(word) if word.startswith("/") else word


def _file(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path


CODES = {
    "j": "the job's id",
    "A": "the id of the job's array",
    "x": "the job's name",
    "a": "the index in an array or grid",
    "u": "the user",
    "%": "a % itself",
}
_CODE = re.compile(r"%(.?)", re.DOTALL)


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return ``template`` with the values of these codes in place; codes without a value stay.

    A value is one part of a path, whatever it contains.  Raises ValueError with a text for users for an unknown code.

    >>> filled("%x-%j.out", {"x": "a/b"})
    'a_b-%j.out'
    """

    def value(found: re.Match[str]) -> str:
        code = found[1]
        if code not in CODES or not code:
            known = ", ".join(f"%{name} ({meaning})" for name, meaning in CODES.items())
            raise ValueError(f"there is no code {found[0]}: there are {known}")
        return values[code].replace("/", "_").replace("%", "%%") if code in values else found[0]

    return _CODE.sub(value, template)


def of_job(template: str, job: int, array: int | None) -> str:
    """Return the file name for a job.  Raises ValueError for a code that the daemon does not fill."""
    values = {"j": str(job), "A": str(array or job), "%": "%"}

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise ValueError(f"{found[0]} is filled before a job is submitted")
        return values[found[1]]

    return _CODE.sub(value, template)
