"""The code of factories: where it is found, and how a change of it is detected.

The working directory comes after everything that is installed: files there, perhaps of another user, never replace a
part of PyTorch or of Carpool.
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

    Stops writing compiled files: Python uses an old compiled file for a source that was changed within the same second
    and has the same size.
    """
    directory = str(Path.cwd())
    if sys.flags.safe_path and directory not in sys.path:
        sys.dont_write_bytecode = True
        sys.path.append(directory)


def imported() -> tuple[SourceFile, ...]:
    """Return the Python files that this process has imported, without installed ones."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    installed = tuple(path + os.sep for path in _installed())
    own = sorted(file for file in files if file and file.endswith(".py") and not file.startswith(installed))
    return tuple(SourceFile(file, _digest(file)) for file in own)


def changed(files: Iterable[SourceFile]) -> str | None:
    """Return the first file whose content has changed, or None."""
    return next((file.path for file in files if _digest(file.path) != file.digest), None)


def _installed() -> set[str]:
    standard = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return {*standard, *site.getsitepackages(), site.getusersitepackages(), _CARPOOL}


def _digest(file: str) -> str:
    """Return the digest of a file's content; empty if it cannot be read."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return ""
