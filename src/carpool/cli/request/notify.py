"""Targets of notices about a job, with the whole paths of their programs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from carpool.cli.base.cli_error import Exit, Problem
from carpool.protocol.notices import EVENTS, NotifyTarget


def targets(
    given: Sequence[NotifyTarget], events: Sequence[str] | None, directory: Path, env: Mapping[str, str]
) -> list[NotifyTarget]:
    """Return targets with the chosen events, and with whole paths of programs.  Raises Problem."""
    if events is not None and not given:
        text = "--notify-on needs a target, and no --notify names one"
        raise Problem(Exit.USAGE, "nobody_to_notify", text, "add --notify webhook:URL or --notify exec:COMMAND")
    on = list(EVENTS if events is None else events)
    return [
        NotifyTarget(on, target.webhook, _found(target.command, directory, env) if target.command else [])
        for target in given
    ]


def _found(words: Sequence[str], directory: Path, env: Mapping[str, str]) -> list[str]:
    """Find the program as the user's shell would now: the command gets a plain PATH later.  Raises Problem."""
    program = str(directory / words[0]) if "/" in words[0] else words[0]
    path = shutil.which(program, path=env.get("PATH"))
    if path is None:
        text = f"--notify exec:{words[0]}: there is no such program, or it may not be run"
        raise Problem(Exit.NOT_FOUND, "command_not_found", text, "check its spelling, or give its whole path")
    return [path, *words[1:]]
