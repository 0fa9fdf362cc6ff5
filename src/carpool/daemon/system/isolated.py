"""Programs of Carpool that the daemon starts as processes; nothing of the daemon's environment reaches them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def start_isolated(
    program: Path, arguments: Sequence[object], fds: Sequence[int], stderr: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start a Python file that needs the standard library only, in a session of its own; it inherits ``fds``.

    ``stderr``: as for `subprocess.Popen`.  Raises OSError.
    """
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(program), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        cwd="/",
        env={"LANG": "C.UTF-8"},
        pass_fds=fds,
        start_new_session=True,
    )
