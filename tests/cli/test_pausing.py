"""`carpool pause` and `resume`, by ids, --all and --user."""

from __future__ import annotations

import json
import os

from carpool.protocol.display import user_name
from tests.cli.conftest import Cli


def ids(output: str) -> list[int]:
    return [job["id"] for job in json.loads(output)["jobs"]]


def test_jobs_are_paused_and_resumed(shared: Cli) -> None:
    first, second = (shared.ok("submit", "--", "sleep", "600").strip() for _ in range(2))
    held = shared.ok("submit", "--hold", "--", "true").strip()
    assert shared.ok("pause", first) == f"job {first} paused\n"
    listed = shared.ok("ls")
    assert "paused" in listed and f"paused by {user_name(os.getuid())}" in shared.ok("show", first)
    assert ids(shared.ok("pause", "--all", "--json")) == [int(second), int(held)], "not the one that is paused already"
    assert ids(shared.ok("resume", "--user", user_name(os.getuid()), "--json")) == [int(first), int(second), int(held)]
    assert "no job of yours is selected" in shared("resume", "--all").stderr
    assert "is not paused" in shared("resume", first).stderr
    shared.ok("cancel", first, second, held)


def test_what_is_meant_has_to_be_said(shared: Cli) -> None:
    assert shared("pause").returncode == 2
    assert shared("pause", "1", "--all").returncode == 2
    assert "this machine has no user 'nobody-here'" in shared("pause", "--user", "nobody-here").stderr
