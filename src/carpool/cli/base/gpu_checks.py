"""What `carpool doctor` says about GPUs: findings of processes of their own, since a driver can hang."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from carpool.cli.base.doctor_checks import Check

PATIENCE_S = 120.0
PROBE = "carpool.devices.cuda.probe"
TELEMETRY = "carpool.telemetry.capabilities"
ADVICE = "look at `nvidia-smi`: if it does not answer either, the driver has to be started anew"


def gpu_checks(patience_s: float = PATIENCE_S) -> Iterator[Check]:
    """One check that finds nothing, without a GPU.  What Carpool can do without is no problem."""
    sharing = list(_findings(PROBE, patience_s))
    yield from sharing
    if any(check.name.startswith("GPU ") for check in sharing):
        yield from _findings(TELEMETRY, patience_s)


def _findings(program: str, patience_s: float) -> Iterator[Check]:
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", program], capture_output=True, text=True, timeout=patience_s, check=False
        )
    except subprocess.TimeoutExpired:
        yield Check("GPU", False, f"the driver does not answer within {patience_s:.0f} s", ADVICE)
        return
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        yield Check("GPU", False, f"trying it ended with status {done.returncode}: {last}", ADVICE)
        return
    for finding in json.loads(done.stdout):
        ok, text = finding["ok"], finding["text"]
        if not ok and not finding["needed"]:
            ok, text = True, f"missing, {finding['advice']} ({text})"
        yield Check(finding["name"], ok, text, "" if ok else finding["advice"])
