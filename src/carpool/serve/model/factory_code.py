"""The code of factories: where it is found, and by what it is told from what it was before.

The working directory comes behind everything that is installed: what lies there, perhaps of another user's, is never
taken for a part of PyTorch or of Carpool.
"""

from __future__ import annotations

import hashlib
import os
import site
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from carpool.serve.plan.manifest import SourceFile

_CARPOOL = str(Path(__file__).resolve().parents[2])


def find_in_working_directory() -> None:
    """Let factories be imported from the working directory, in a process that was started with ``-P``.

    No compiled files are written from then on: Python takes an old one for that of a file that was changed within the
    same second and has the same size.
    """
    directory = str(Path.cwd())
    if sys.flags.safe_path and directory not in sys.path:
        sys.dont_write_bytecode = True
        sys.path.append(directory)


def imported() -> tuple[SourceFile, ...]:
    """The Python files that this process has imported, but those that are installed."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    installed = tuple(path + os.sep for path in _installed())
    own = sorted(file for file in files if file and file.endswith(".py") and not file.startswith(installed))
    return tuple(SourceFile(file, _digest(file)) for file in own)


def changed(files: Iterable[SourceFile]) -> str | None:
    """The first file that is not as it was."""
    return next((file.path for file in files if _digest(file.path) != file.digest), None)


def _installed() -> set[str]:
    standard = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return {*standard, *site.getsitepackages(), site.getusersitepackages(), _CARPOOL}


def _digest(file: str) -> str:
    """Empty: it cannot be read."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return ""
