"""`carpool clean` with a real daemon: rows, logs, and what stays."""

from __future__ import annotations

import json
import time

from carpool.cli.commands.jobs.clean import WHY_KEPT
from tests.cli.conftest import Cli


def ended(cli: Cli, name: str, *command: str) -> int:
    job = cli.submit("--name", name, "--", *command)
    cli("wait", job)
    return int(job)


def ids(cli: Cli) -> set[int]:
    return {job["id"] for job in json.loads(cli.ok("ls", "--all", "--json"))["jobs"]}


def until_old_enough(cli: Cli, *jobs: int) -> None:
    """A job that has just ended stays."""
    deadline = time.monotonic() + 20
    while kept := json.loads(cli.ok("clean", "--json", *map(str, jobs)))["kept"]:
        assert time.monotonic() < deadline, kept
        jobs = tuple(kept)


def test_ended_jobs_are_removed_with_their_logs(shared: Cli) -> None:
    good, bad, awaited = (ended(shared, *words) for words in (("good", "true"), ("bad", "false"), ("awaited", "true")))
    waits = int(shared.submit("--hold", "--name", "waits", "--after", str(awaited), "--", "true"))
    assert shared.ok("clean", "--dry-run", "--state", "failed").split() == [
        str(bad),
        "1",
        "job",
        "would",
        "be",
        "removed",
    ]
    assert json.loads(shared.ok("clean", "--json", "--all", "--older-than", "1h")) == {"removed": [], "kept": []}
    assert ids(shared) == {good, bad, awaited, waits}, "nothing was removed"
    until_old_enough(shared, good, bad)
    assert ids(shared) == {awaited, waits}
    assert not (shared.home / "jobs" / str(bad)).exists() and "has been removed" in shared("show", str(bad)).stderr
    result = shared("clean", "--all")
    assert result.stdout == f"removed 0 jobs; not removed: {awaited} ({WHY_KEPT})\n"
    assert "no job of yours is selected by 'waits'" in shared.fails(4, "clean", "waits", str(waits))
    assert f"carpool cancel {waits}" in shared.fails(5, "clean", str(waits))
    shared.ok("cancel", str(waits))
