"""``carpool backup``: a copy of the journal that a daemon can start from."""

from __future__ import annotations

from pathlib import Path

import click

from carpool.cli.base.journal_tools import backup
from carpool.cli.base.options_common import OUTPUT_FILE, answer, plural, with_common_options
from carpool.protocol.units import format_size


@click.command("backup", short_help="Copy the daemon's journal, without environments.")
@click.argument("file", type=OUTPUT_FILE)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@with_common_options
def command(home: Path, as_json: bool, file: Path, force: bool) -> int:
    """Copy the journal to FILE, whether the daemon runs or not.  Only its owner may read the copy.

    The copy has neither environments nor targets of notices, which may hold secrets.  To go back to it: stop the
    daemon, move journal.sqlite and journal.sqlite-wal away, and put the copy in the place of journal.sqlite.  Jobs that
    run go on; jobs that had not started have to be submitted again, and models to be registered again.
    """
    made = backup(home, file, force=force)
    return answer(as_json, made, lambda: [f"{made.file}: {plural(made.jobs, 'job')}, {format_size(made.bytes)}"])
