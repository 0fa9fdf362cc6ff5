"""Starting the daemon: what is said of one that ends without a word."""

from __future__ import annotations

import subprocess
from pathlib import Path

from carpool.cli.base.daemon_start import _silent
from carpool.protocol.paths import Home


def test_a_daemon_that_is_just_ending_was_not_too_slow(tmp_path: Path) -> None:
    (tmp_path / "daemon.log").write_text("its last words\n")
    failed = _silent(subprocess.Popen(["sh", "-c", "exit 3"]), Home(tmp_path))
    assert failed.info.message == "the daemon exited during start-up (exit code 3)"
    assert failed.info.hint.endswith("its last words")
