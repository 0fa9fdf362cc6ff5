"""`carpool drain` and `undrain`."""

from __future__ import annotations

from tests.cli.conftest import Cli


def test_a_device_is_drained_and_used_again(shared: Cli) -> None:
    job = shared.submit("--", "sleep", "600")
    while "running" not in shared.ok("show", job):
        pass
    assert "new fan, 1 job there" in shared.ok("drain", "host0", "--reason", "new fan")
    assert f"1 job on host0: {job}" in shared.fails(6, "drain", "host0", "--wait", "--timeout", "50ms")
    waits = shared.submit("--", "true")
    assert "host0 is drained by" in shared.ok("show", waits)
    assert "no new job is placed there" in shared.ok("devices")
    shared.ok("cancel", job)
    assert "0 jobs there" in shared.ok("drain", "host0", "--wait")
    assert "placed there again" in shared.ok("undrain", "host0")
    assert shared("wait", waits).returncode == 0
    assert shared("drain", "host9").returncode == 4
