"""On whichever route a program reaches the driver, the gate is there."""

from __future__ import annotations

import json

from carpool.runtime.native import library_path
from tests.gpu.registry import Figures, Needs, check, require
from tests.gpu.scripts import needs_cuda, run


@check("driver and runtime are found by all routes, and the gate on each", Needs.TORCH)
def driver_routes() -> Figures:
    needs_cuda()
    seen = json.loads(run("routes.py", preload=True).splitlines()[-1])
    require(seen["kernels"], "kernels compute something else than the CPU")
    require(len(seen["drivers"]) == 1, f"there should be one driver in the process: {seen['drivers']}")
    past = [
        f"{call} by {route}: {library}"
        for route, calls in seen["found"].items()
        for call, library in calls.items()
        if library != str(library_path())
    ]
    require(not past, "\n".join([f"of {seen['drivers']}, past the gate:", *past]))
    return {"routes": float(len(seen["found"])), "driver": seen["driver"] / 1000, "runtime": seen["runtime"] / 1000}
