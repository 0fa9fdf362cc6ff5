"""Two engines that each take nine tenths of a GPU: as a driver answers, and as Carpool does.  On an emulated GPU."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from carpool.core.model import MIB
from carpool.protocol.api import SubmitRequest
from tools.demo.jobs import ROOT, environment
from tools.demo.picture import Band
from tools.demo.running import TIMEOUT_S, follow, time_limit
from tools.demo.scene import Scene
from tools.demo.session import Session
from tools.demo.submitting import ONE_LANE, band
from tools.emulator.environment import VENV, libraries_of, variables

CAPACITY = 128 * MIB
ENGINES = 2
SECONDS = 6.0
VISIBLE = {"CUDA_VISIBLE_DEVICES": "0"}  # whatever this shell says of GPUs that there are
TITLE = "Two engines each take nine tenths of the same GPU"
WHY = "Each is told of the whole GPU: while one has its turn, the memory of the other is in the host store."


def missing() -> str:
    """What the scene lacks on this machine; empty: nothing."""
    return "" if libraries_of(VENV).is_dir() else "it needs the emulated GPU: run `make emulated-gpu`"


def run(directory: Path) -> Scene:
    before = _as_the_driver_answers()
    after, shared = _shared(directory / "shared")
    figure = "engines that work side by side, without -> with Carpool"
    words = [f"{count} of {ENGINES}" for count in (before, after)]
    return Scene("engines", TITLE, figure, words[0], words[1], WHY, [shared], CAPACITY)


def _on_gpu(state: Path) -> Mapping[str, str]:
    """On one whose contexts take less than a tenth of it, as on cards that serve."""
    return variables(VENV, f"{CAPACITY // MIB}MiB", state, environment() | {"EMULATOR_CONTEXT": "2MiB"} | VISIBLE)


def _as_the_driver_answers() -> int:
    """The second one comes while the first works."""
    with TemporaryDirectory(prefix="carpool-", dir="/dev/shm") as state:
        env = _on_gpu(Path(state))
        with subprocess.Popen(_engine(TIMEOUT_S), env=env, stdout=subprocess.PIPE) as first:
            try:
                works = bool(first.stdout and first.stdout.readline())
                second = subprocess.run(_engine(SECONDS), env=env, capture_output=True, timeout=TIMEOUT_S, check=False)
            finally:
                first.terminate()
        return works + (second.returncode == 0)


def _engine(seconds: float) -> list[str]:
    return [str(VENV / "bin" / "python"), str(ROOT / "tools" / "demo" / "programs" / "engine.py"), str(seconds)]


def _shared(home: Path) -> tuple[int, Band]:
    with TemporaryDirectory(prefix="carpool-", dir="/dev/shm") as state:
        env = dict(_on_gpu(Path(state)))
        gpu = {name: env[name] for name in env if name.startswith(("EMULATOR_", "LD_"))}
        with (
            Session(home, ["cuda:0"], "fair", ONE_LANE, env=os.environ | gpu | VISIBLE) as client,
            time_limit("two engines on one GPU"),
        ):
            requests = [
                SubmitRequest(_engine(SECONDS), str(ROOT), env, name=f"engine{n}") for n in range(1, ENGINES + 1)
            ]
            jobs = [client.submit(request) for request in requests]
            found = band("both, by turns", follow(client, set(jobs)), client)
            return sum(client.job(job).outcome == "succeeded" for job in jobs), found
