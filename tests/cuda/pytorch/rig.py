"""Jobs that are PyTorch's CUDA build on an emulated GPU, and the same scripts on the CPU, or on a GPU of their own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from carpool.core.model import MIB
from tests import emulated
from tests.cuda.rig import Daemon
from tests.live import PATIENCE_S, Running, Script

PROGRAMS = Path(__file__).parent / "programs"
#: Of a job, so that nobody waits for measurements.
KNOWN = {"persistent_bytes": 48 * MIB, "ephemeral_bytes": 48 * MIB}
#: Kernels that compute nothing: contents are there by copies alone.
NO_KERNELS = {"EMULATOR_RESULTS": "0"}
#: The same, and slow: copies, which do, wait behind them, and nobody waits for results.
SLOW_KERNELS = NO_KERNELS | {"EMULATOR_KERNEL_US": "200"}
#: Jobs that are to take turns do so at least so often.
TURNS = 5


class CudaScript(Script):
    DIRECTORY = PROGRAMS

    def command(self, out: Path) -> list[str]:
        return [emulated.PYTHON, *super().command(out)[1:]]


class CudaDaemon(Daemon):
    PROGRAM: ClassVar[type[Script]] = CudaScript


class Alone:
    """Results of scripts on emulated GPUs of their own, each computed once."""

    def __init__(self, directory: Path, sizes: str = "1GiB,1GiB", **gpu: str) -> None:
        """``gpu``: what else is said of them (``EMULATOR_...``)."""
        self._directory, self._sizes, self._gpu = directory, sizes, gpu
        self._results: dict[str, Any] = {}

    def result(self, script: str) -> Any:
        if script not in self._results:
            self._results[script] = self._run(CudaScript.named(script))
        return self._results[script]

    def _run(self, script: CudaScript) -> Any:
        out = self._directory / f"out{len(self._results)}"
        environment = emulated.on_gpus(self._sizes, self._directory / "gpu") | self._gpu
        done = subprocess.run(
            script.command(out), env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, f"{script} fails without Carpool, too:\n{done.stdout}{done.stderr}"
        return json.loads(out.read_text())


def together(daemon: Daemon, scripts: Sequence[str], *, keep: bool = False, **request: Any) -> list[Running]:
    """They begin to compute at the same time; ``keep``: and wait for each other every few iterations."""
    jobs = [daemon.submit(script, meet=True, **request) for script in scripts]
    daemon.meeting.begin(len(jobs), together=keep)
    return jobs


def in_turns(
    daemon: Daemon, scripts: Sequence[str], expected: Callable[[str], Any], turns: int = TURNS, **request: Any
) -> list[Running]:
    """Jobs that share the device, with the results that they must have."""
    jobs = together(daemon, scripts, keep=True, **request)
    for script, job in zip(scripts, jobs, strict=True):
        assert differing(job.result(), expected(script)) == []
    assert all(job.info().switches >= turns for job in jobs), [job.info().switches for job in jobs]
    return jobs


def differing(result: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """What a job has computed differently."""
    return [name for name in {**expected, **result} if result.get(name) != expected.get(name)]


def right(_script: str) -> dict[str, Any]:
    """What every `integrity` comes to."""
    return {"wrong": 0, "checked": True}


def unexpected_calls() -> Path:
    """Where processes name the functions that the emulated GPU does not have."""
    return Path(os.environ["EMULATOR_STATE"]).with_suffix(".unexpected")
