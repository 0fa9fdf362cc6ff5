"""Copies of one job that need most of a device each: run one after another without Carpool, and together with it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.jobs import TIMEOUT_S, argv, result_of, run_bare, submit
from carpool.protocol.api import DeviceRequest, JobInfo
from carpool.protocol.client import DaemonClient
from tools.demo.session import Session

DEVICE_MIB = 128
#: 90 % of the device.
MOST_MIB = 112
#: Steps and hashes that are timed to find out how many fill a second.
SAMPLE = (60, 100)


@dataclass(frozen=True, slots=True)
class Rates:
    """What one copy alone does per second."""

    hashes_s: float
    steps_s: float


@dataclass(frozen=True, slots=True)
class Load:
    """One job: so many phases of hashing and training, in memory of so many MiB."""

    mib: int
    phases: int
    hashes: int
    steps: int

    def command(self, *more: object) -> list[str]:
        return argv("heavy.py", self.mib, self.phases, self.hashes, self.steps, *more)


@dataclass(frozen=True, slots=True)
class Together:
    """How copies fared together: seconds from the first one's begin to the last one's end."""

    seconds: float
    jobs: Sequence[JobInfo]

    @property
    def moved_mib(self) -> int:
        return sum(job.moved.out_bytes + job.moved.in_bytes for job in self.jobs) >> 20

    @property
    def switch_s(self) -> float:
        """What moving one copy out and another in has taken on average."""
        out, into = (
            [(getattr(job.moved, f"{way}_bytes"), getattr(job.moved, f"{way}_us")) for job in self.jobs]
            for way in ("out", "in")
        )
        return sum(MOST_MIB * (1 << 20) * _per_byte_us(pairs) / 1e6 for pairs in (out, into))


def _per_byte_us(pairs: Sequence[tuple[int, int]]) -> float:
    size, taken = (sum(values) for values in zip(*pairs, strict=True))
    return taken / size if size else 0.0


def rates(mib: int = MOST_MIB) -> Rates:
    hashes, steps = SAMPLE
    result = run_bare(Load(mib, 1, hashes, steps).command())
    return Rates(hashes / result["hashing_s"], steps / result["stepping_s"])


def load(rates: Rates, phases: int, cpu_s: float, device_s: float, mib: int = MOST_MIB) -> Load:
    """Phases that last so long for a copy that is alone."""
    return Load(mib, phases, round(cpu_s * rates.hashes_s), max(1, round(device_s * rates.steps_s)))


def apart(load: Load, copies: int = 2) -> float:
    """Seconds that the copies take one after another, without Carpool; start-up is not counted."""
    results = [run_bare(load.command()) for _ in range(copies)]
    return sum(result["end_s"] - result["begin_s"] for result in results)


def together(
    load: Load,
    copies: int = 2,
    *,
    policy: str = "fair",
    settings: Mapping[str, int] | None = None,
    device: DeviceRequest | None = None,
) -> Together:
    """The copies as jobs of one device; they begin to work at the same time."""
    with tempfile.TemporaryDirectory() as directory:
        home, go = Path(directory) / "home", Path(directory) / "go"
        with Session(home, [f"host:{DEVICE_MIB}MiB"], policy, dict(settings or {})) as client:
            if device is not None:
                client.set_device("host0", device)
            jobs = [submit(client, load.command("--go", go)) for _ in range(copies)]
            _await_first_steps(client, jobs)
            go.touch()
            ended = [result_of(client, job) for job in jobs]
    checksums = {result["checksum"] for _, result in ended}
    if len(checksums) != 1:
        raise RuntimeError(f"{copies} copies of one job have {len(checksums)} different results")
    results = [result for _, result in ended]
    seconds = max(result["end_s"] for result in results) - min(result["begin_s"] for result in results)
    return Together(seconds, [info for info, _ in ended])


def _await_first_steps(client: DaemonClient, jobs: Sequence[int]) -> None:
    """Every copy has had its memory and its first step; importing torch takes seconds."""
    deadline = time.monotonic() + TIMEOUT_S
    while any(client.job(job).iterations == 0 for job in jobs):
        if time.monotonic() > deadline or any(client.job(job).phase == "ended" for job in jobs):
            raise RuntimeError("a copy did not come to its first step")
        time.sleep(0.02)
