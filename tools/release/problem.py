"""What stops a release."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


class Problem(Exception):
    """The release cannot be made; the text says why and what to do."""


def run(command: Sequence[str | Path], **options: object) -> str:
    """What the command writes.  Raises Problem with what it says instead."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    except FileNotFoundError:
        raise Problem(f"{command[0]} is not installed") from None
    if done.returncode != 0:
        raise Problem(f"{' '.join(map(str, command))} failed:\n{done.stderr.strip() or done.stdout.strip()}")
    output: str = done.stdout
    return output
