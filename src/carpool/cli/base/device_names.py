"""Names of devices that users write on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from carpool.cli.base.cli_error import Problem
from carpool.cli.base.exit_codes import Exit
from carpool.protocol.spelling import did_you_mean


def check_device(name: str, known: Sequence[str]) -> None:
    """Check that ``name`` is one of the ``known`` devices of the daemon.  Raises Problem."""
    if name not in known:
        hint = f"{did_you_mean(name, known)}known devices: {', '.join(known)}"
        raise Problem(Exit.NOT_FOUND, "unknown_device", f"there is no device {name!r}", hint)
