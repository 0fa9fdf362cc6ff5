"""``python -m tools.demo --keep``: a page of jobs that take turns, and a daemon that stays when the page ends."""

from __future__ import annotations

import signal
import subprocess
import urllib.request
from pathlib import Path

from carpool.protocol.client import DaemonClient


def test_the_page_is_shown_and_the_daemon_stays(root: Path, python: str, tmp_path: Path) -> None:
    home = tmp_path / "h"
    code = f"from pathlib import Path; from tools.demo.page import show; show(Path({str(home)!r}))"
    with subprocess.Popen([python, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = next(line for line in process.stdout if line.startswith("http://")).split("#")[0]
            with urllib.request.urlopen(url, timeout=60) as answer:
                assert b"Carpool" in answer.read()
            subprocess.run(["pkill", "-INT", "-P", str(process.pid), "-f", "dashboard"], check=True)
            assert "down --stop-jobs" in process.stdout.read()
            with DaemonClient(home) as client:
                assert {job.name for job in client.jobs()} == {"gpt", "resnet", "cnn", "mlp"}
        finally:
            process.send_signal(signal.SIGTERM)
            with DaemonClient(home) as client:
                client.shutdown(stop_jobs=True)
