"""Verify a journal (`--from-journal --verify`): whether today's core decides as the daemon's core did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.options_common import plural, print_json
from carpool.cli.render.progress import Progress

if TYPE_CHECKING:
    from carpool.sim.replay import Replay


def verify(journal: Path, as_json: bool, quiet: bool) -> Exit:
    """Replay a journal and print the result.  Raises Problem for a journal that cannot be read or verified."""
    from carpool.sim.replay import replay_journal

    try:
        with Progress("replaying the journal", not quiet):
            found = replay_journal(journal)
    except ValueError as error:
        raise Problem(Exit.FAILED, "journal", str(error)) from error
    if not found.lives:
        raise Problem(Exit.FAILED, "journal", f"{journal}: nothing can be verified: {_incomplete(found)}")
    if as_json:
        difference = None if found.difference is None else str(found.difference)
        counts = {name: getattr(found, name) for name in ("lives", "incomplete", "events", "commands")}
        print_json({"same": difference is None, **counts, "difference": difference})
    else:
        print(_text(found))
    return Exit.OK if found.difference is None else Exit.FAILED


def _text(found: Replay) -> str:
    if found.difference is not None:
        return f"a decision differs {found.difference}"
    left_out = f"; {_incomplete(found)}" if found.incomplete else ""
    size = f"{plural(found.events, 'event')}, {plural(found.commands, 'command')}"
    return f"the same decisions: {size}, {plural(found.lives, 'start')} of the daemon{left_out}"


def _incomplete(found: Replay) -> str:
    return f"events of {plural(found.incomplete, 'start')} of the daemon are missing"
