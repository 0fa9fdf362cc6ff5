"""What `carpool doctor` tries on each GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tools.gpu_check.registry import check, needs_packages, require

PROBE = "carpool.devices.cuda.probe"


def findings(needed: bool) -> list[dict[str, Any]]:
    needs_packages("msgspec")  # what its agents talk with
    done = subprocess.run([sys.executable, "-P", "-m", PROBE], capture_output=True, text=True, check=False)
    require(done.returncode == 0, f"the probe failed:\n{done.stderr[-1500:]}")
    found = [finding for finding in json.loads(done.stdout) if finding["needed"] == needed]
    require(bool(found), "the probe found nothing to try")
    absent = [finding["text"] for finding in found if finding["name"] == "GPU"]  # what holds of no GPU in particular
    require(not absent, "; ".join(absent))
    return found


def works(needed: bool) -> None:
    failed = [f"{one['name']}: {one['text']}" for one in findings(needed) if not one["ok"]]
    require(not failed, "; ".join(failed))


@check("what jobs need to share a GPU: create, export, import, map, copy, pin")
def needed_mechanisms() -> None:
    works(needed=True)


@check("what Carpool uses where it is there: waiting for values, checkpoint calls")
def optional_mechanisms() -> None:
    works(needed=False)
