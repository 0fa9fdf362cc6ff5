"""`carpool limits`, and groups of `carpool set`, `submit` and `update`."""

from __future__ import annotations

import getpass
import json

from tests.cli.conftest import Cli


def rows(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split() for line in text.splitlines() if line}


def test_limits_are_set_shown_and_taken_back(shared: Cli) -> None:
    me = getpass.getuser()
    assert f"user_running.{me}  3" in shared.ok("set", "user_running=5", f"user_running.{me}=3", "group.vision=1")
    assert shared("submit", "--group", "vison", "--", "true").returncode == 2
    assert "did you mean 'vision'?" in shared("submit", "--group", "vison", "--", "true").stderr
    first, second = (shared.submit("--group", "vision", "--", "sleep", "600") for _ in range(2))
    assert "group vision runs 1 job of at most 1 (group.vision)" in shared.ok("show", second)
    found = rows(shared.ok("limits"))
    assert found["user_running"][1:3] == ["1", "3"] and found["user_devices"][1:3] == ["1", "any"]
    assert found["group.vision"][1:3] == ["1", "1"]
    assert json.loads(shared.ok("limits", "--json"))["user"] == me
    shared.ok("update", second, "group=none")
    assert "group.vision  default" in shared.ok("set", "group.vision=default")
    assert "group.vision" not in shared.ok("limits")
    shared.ok("cancel", first, second)
    assert "there is no user" in shared("limits", "--user", "no-such-user").stderr
