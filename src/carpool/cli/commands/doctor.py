"""``carpool doctor``: can Carpool work here, and if not, what to do."""

from __future__ import annotations

from pathlib import Path

import click

from carpool.cli.base.doctor_checks import gpu_checks, run_checks
from carpool.cli.base.exit_codes import Exit
from carpool.cli.base.journal_tools import journal_checks
from carpool.cli.base.options_common import print_json, with_common_options
from carpool.cli.render.style import stdout_style


@click.command("doctor", short_help="Check whether Carpool can work on this machine.")
@click.option("--journal", is_flag=True, help="Check the daemon's journal instead; the daemon may run meanwhile.")
@with_common_options
def command(home: Path, as_json: bool, journal: bool) -> int:
    """Check this machine: kernel features, library, directories, memory, daemon, GPUs.

    With --journal: the pages of the journal and its write-ahead log, rows that could not be read, and jobs that were
    acknowledged and are missing.  Every problem comes with a remedy.  Exit code 1 if there is one.
    """
    checks = list(journal_checks(home)) if journal else [*run_checks(home), *gpu_checks()]
    healthy = all(check.ok for check in checks)
    if as_json:
        print_json({"ok": healthy, "checks": checks})
        return Exit.OK if healthy else Exit.FAILED
    style = stdout_style()
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark = style.green("ok     ") if check.ok else style.red("problem")
        click.echo(f"{mark}  {check.name:<{width}}  {check.found}")
        if not check.ok:
            click.echo(f"         {'':<{width}}  -> {check.advice}")
    return Exit.OK if healthy else Exit.FAILED
