"""On whichever route a program reaches the driver, the gate is there."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from carpool.runtime.native import library_path
from tools.gpu_check import evidence
from tools.gpu_check.kernels import EMULATED
from tools.gpu_check.registry import Figures, Needs, NotSeen, check, require
from tools.gpu_check.scripts import PROGRAMS, needs_cuda, run

FUNCTIONS = Path(__file__).resolve().parents[3] / "src" / "native" / "cuda" / "functions.def"


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


@check("when cuBLAS and cuDNN have begun, the driver was asked for no form of a call that the gate lacks", Needs.TORCH)
def driver_queries() -> Figures:
    needs_cuda()
    log = evidence.found("queries.txt")
    own = {"LD_PRELOAD": os.fspath(preloaded_log()), "QUERIES": os.fspath(log)}
    seen = json.loads(run("begun.py", os.fspath(FUNCTIONS), "queries", preload=False, **own).splitlines()[-1])
    require(not seen["past"], f"past the gate (name, version, flags): {'; '.join(seen['past'])}")
    if not seen["asked"]:
        raise NotSeen("no CUDA runtime here asks the driver by version: the emulated one is linked to it")
    return {"queries": float(seen["asked"])}


def preloaded_log() -> Path:
    """`queries.c`, compiled."""
    library = evidence.found("libqueries.so")
    command = [os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", os.fspath(PROGRAMS / "queries.c"), "-ldl"]
    done = subprocess.run([*command, "-o", os.fspath(library)], capture_output=True, text=True, check=False)
    require(done.returncode == 0, f"queries.c cannot be compiled: {done.stderr[-500:]}")
    return library


@check("what torch.profiler sees on the device in one step are as many calls as the gate has counted", Needs.TORCH)
def calls_are_counted() -> Figures:
    needs_cuda()
    seen = json.loads(run("counted.py", os.fspath(FUNCTIONS), preload=True).splitlines()[-1])
    evidence.found("counted.json").write_text(json.dumps(seen, indent=1))
    if seen["driver"] is not None:
        require(seen["gate"] == seen["driver"], f"the gate counted {seen['gate']}, the driver {seen['driver']} calls")
        raise NotSeen(f"{seen['gate']} calls, as the emulated driver counts; torch.profiler sees none there")
    if not seen["profiler"]:
        raise NotSeen("torch.profiler sees nothing on the device: may this user read the GPU's counters?")
    more = seen["profiler"] - seen["gate"]
    require(more == 0, f"torch.profiler saw {more} more than the {seen['gate']} that the gate counted (counted.json)")
    return {"calls": float(seen["gate"]), "past the gate": float(more)}


@check("when cuBLAS and cuDNN have begun, no data of a library points to the driver past the gate", Needs.TORCH)
def pointers_past_the_gate() -> Figures:
    needs_cuda()
    seen = json.loads(run("begun.py", os.fspath(FUNCTIONS), "pointers", preload=True).splitlines()[-1])
    past = ", ".join(f"{where} ({count})" for where, count in seen["past"].items())
    require(not past, f"past the gate: {past}")
    if seen["device"] == EMULATED:
        raise NotSeen(
            f"{seen['into']} pointers into the gate; an emulated GPU's libraries have no CUDA runtimes in them"
        )
    return {"pointers into the gate": float(seen["into"])}
