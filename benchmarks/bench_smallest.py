"""The smallest host device on which a job runs alone, against the most bytes of tensors that it has alive at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure, measured_once
from benchmarks.jobs import TIMEOUT_S, WORKLOADS, argv, result_of, run_bare, submit
from carpool.protocol.client import DaemonClient
from tools.demo.session import Session

FAMILIES = ("mlp", "cnn", "resnet", "vgg", "mobilenet", "densenet", "vae", "gpt", "bert", "vit", "unet", "lstm")
ITERATIONS = 14
#: A device must do from 1.05 times the peak, and a 64th of itself, on: so many times the peak.
TARGET = 1.05 / (1 - 1 / 64)
#: Devices are compared in steps of the peak's 200th part, half as fine as the target is told.
STEPS = 200
MOST = 2.0  # times the peak: some device up to there must do
PAGE = 4096
MIB = 1 << 20


@dataclass(frozen=True)
class Measured:
    """A script that trains, in the directory of the workloads."""

    name: str
    script: str
    arguments: tuple[object, ...]

    @property
    def command(self) -> list[str]:
        return argv(self.script, *self.arguments)


def workloads(quick: bool) -> list[Measured]:
    """The twelve families, and the network that was refused memory of which it had enough (issue 19)."""
    families = [Measured(name, "families.py", (name, ITERATIONS)) for name in FAMILIES]
    imagenet = Measured("resnet18 on 224 x 224", "imagenet.py", (ITERATIONS,))
    return families[:1] if quick else [*families, imagenet]


def run(quick: bool) -> list[Figure]:
    return [_figure(each) for each in workloads(quick)]


def _figure(workload: Measured) -> Figure:
    peak, expected = peak_bytes(workload), run_bare(workload.command)
    size = smallest(lambda step: runs(workload, device_size(peak, step), expected))
    ratio = device_size(peak, size) / peak
    detail = {"peak_mib": round(peak / MIB, 2), "device_mib": round(device_size(peak, size) / MIB, 2)}
    name = f"{workload.name}: smallest device / peak of live bytes"
    return measured_once("smallest", name, "ratio", ratio, target=TARGET, **detail)


def peak_bytes(workload: Measured) -> int:
    """Without Carpool."""
    command = argv("peak.py", WORKLOADS / workload.script, *workload.arguments)
    return int(run_bare(command)["peak_bytes"])


def device_size(peak: int, step: int) -> int:
    """Bytes, in whole pages."""
    return -(-peak * (STEPS + step) // STEPS // PAGE) * PAGE


def smallest(enough: Callable[[int], bool]) -> int:
    """The first step from which on devices do, by bisection.  Raises RuntimeError if none up to `MOST` does."""
    low, high = -1, round((MOST - 1) * STEPS)
    if not enough(high):
        raise RuntimeError(f"the job does not run on a device of {MOST} times its peak of live bytes")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def runs(workload: Measured, size: int, expected: Mapping[str, object]) -> bool:
    """Whether the job ends well, alone on a device of so many bytes.  Raises RuntimeError if it computes other results
    than ``expected``.
    """
    device, settings = f"host:{size // 1024}KiB", {"max_recoveries": 0}
    with tempfile.TemporaryDirectory() as home, Session(Path(home), [device], "fair", settings) as client:
        job = submit(client, workload.command)
        if client.wait(job, TIMEOUT_S).outcome != "succeeded":
            _check_refused(client, job)
            return False
        result = result_of(client, job)[1]
    if result != expected:
        raise RuntimeError(f"{workload.name} computes {result} on a device of {size} bytes, and {expected} without")
    return True


def _check_refused(client: DaemonClient, job: int) -> None:
    """A job that fails otherwise says nothing about memory."""
    reason = client.job(job).reason
    if reason is None or reason.code != "out_of_memory":
        raise RuntimeError(f"job {job} failed: {reason}\n{b''.join(client.logs(job)).decode(errors='replace')[-2000:]}")
