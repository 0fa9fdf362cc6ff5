"""PyTorch scripts, run by themselves or with libcarpool preloaded."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from carpool.runtime.native import library_path
from tools.gpu_check.registry import NotSeen, Skip, require

PROGRAMS = Path(__file__).resolve().parent / "programs"
TIMEOUT_S = 120
#: How lines begin that say of a script that this machine cannot run it, with Carpool or without.
LIMITS = ("emulated GPU: ", "torch._inductor.exc.TritonMissing: ")


def run(program: str, *arguments: str, preload: bool, **more: str) -> str:
    """What it prints.

    Raises AssertionError with what it complained about if it failed, NotSeen where this machine cannot run it at all.
    """
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    if preload:
        require(library_path().exists(), "libcarpool is not built: python3 src/native/build.py")
        env["LD_PRELOAD"] = str(library_path())
    env |= more
    command = [sys.executable, str(PROGRAMS / program), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    how = "with libcarpool preloaded" if preload else "by itself"
    last = "".join(done.stderr.splitlines()[-1:])
    limits = [line for line in done.stderr.splitlines() if line.startswith(LIMITS)]
    if done.returncode and limits and not preload:
        raise NotSeen(f"{program} {' '.join(arguments)} cannot be computed here: {limits[-1]}")
    require(done.returncode == 0, f"{program} {' '.join(arguments)} failed {how}: {last}\n{done.stderr[-1500:]}")
    return done.stdout.strip()


def run_together(program: str, *arguments: str, count: int) -> list[str]:
    """What so many of them print that run at the same time, without Carpool."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: run(program, *arguments, preload=False), range(count)))


def needs_cuda() -> None:
    """Raises Skip where PyTorch cannot use a GPU."""
    try:
        import torch
    except ImportError:
        raise Skip("there is no PyTorch here") from None
    if not torch.cuda.is_available():
        raise Skip("PyTorch sees no CUDA device")
