"""``carpool clean``: remove ended jobs before their time."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from carpool.cli.base.job_selection import Selection, selected_ended, with_job_selection
from carpool.cli.base.options_common import TIME_US, answer, plural, with_common_options
from carpool.cli.render import formatting
from carpool.protocol.api import CleanResponse
from carpool.protocol.client import DaemonClient

WHY_KEPT = "other jobs wait for them, they are the newest or have just ended, belong to other users, or no longer exist"


@click.command("clean", short_help="Remove ended jobs and their logs.")
@partial(with_job_selection, all_of="All your jobs that have ended.")
@click.option("--older-than", "age_us", type=TIME_US, help="Only jobs that ended at least this long ago, as in 7d.")
@click.option("--dry-run", is_flag=True, help="Only print the ids of the jobs that would be removed.")
@with_common_options
def command(home: Path, as_json: bool, selection: Selection, age_us: int | None, dry_run: bool) -> int:
    """Remove ended jobs for good: from lists, with their logs and directories, earlier than limits.toml says.

    Only your own jobs; administrators remove any.  Files that jobs have written elsewhere stay.  Jobs for which others
    wait, the newest one and those that have just ended stay, too; other users' jobs in a range are left out.  Examples:

    \b
        carpool clean --all --older-than 7d
        carpool clean --state failed,cancelled --name "test-*"
    """
    with DaemonClient(home) as client:
        chosen = selected_ended(client, selection, formatting.now_us() - (age_us or 0))
        cleaned = CleanResponse([], chosen) if dry_run else client.clean(chosen)
    return answer(as_json, cleaned, lambda: _lines(cleaned, dry_run))


def _lines(cleaned: CleanResponse, dry_run: bool) -> list[str]:
    if dry_run:
        return [*map(str, cleaned.kept), f"{plural(len(cleaned.kept), 'job')} would be removed"]
    kept = f"; not removed: {', '.join(map(str, cleaned.kept))} ({WHY_KEPT})" if cleaned.kept else ""
    return [f"removed {plural(len(cleaned.removed), 'job')}{kept}"]
