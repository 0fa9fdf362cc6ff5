"""What ``--keep`` leaves: a daemon whose jobs take turns, and the page that shows them."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from carpool.protocol.client import DaemonClient
from tools.demo.jobs import ROOT, environment
from tools.demo.submitting import CAPACITY, example

CARPOOL = (sys.executable, "-m", "carpool.cli")
#: Long enough to look around: minutes, on two cores.
ITERATIONS = {"gpt": 400, "resnet": 300, "cnn": 600, "mlp": 2000}


def show(home: Path) -> None:
    """Serves the page until Ctrl-C; the daemon and its jobs stay."""
    options = [f"--home={home}", f"--device=host:{CAPACITY}B", "--policy=fair", "--set=max_lanes=1"]
    subprocess.run([*CARPOOL, "up", *options], cwd=ROOT, check=True)
    with DaemonClient(home) as client:
        for name, iterations in ITERATIONS.items():
            example(client, name, iterations)
    print(f"Four jobs take turns in {home}. Their page:", flush=True)
    with suppress(KeyboardInterrupt):
        subprocess.run([*CARPOOL, "dashboard", f"--home={home}"], cwd=ROOT, env=environment(), check=False)
    print(f"The daemon and its jobs go on. Their end: {' '.join(CARPOOL)} down --stop-jobs --home {home}")
