"""Names of files that jobs write to, with placeholders that are filled later: ``run-%j.out``.

The codes are Slurm's.  The command line fills all but the numbers of the job and its array, which the daemon assigns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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
