"""An idle notebook's next cell beside a batch job, under `fair`, where the device has no room for both."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from benchmarks.copies import DEVICE_MIB, Load
from benchmarks.figures import Figure, measured_once
from benchmarks.jobs import argv, result_of, submit
from carpool.core.model import Settings
from carpool.core.policies.own import Fair
from carpool.facts.fact import Fact, What
from carpool.facts.recorded import facts_of
from carpool.protocol.api import DeviceInfo
from carpool.protocol.client import DaemonClient
from tools.demo.session import Session

#: 60 % of the device each.
TABLE_MIB = 80
THINKING_S = (0.3, 2.5)
ENDLESS = 1_000_000


def run(quick: bool) -> list[Figure]:
    cells = 12 if quick else 120
    with (
        tempfile.TemporaryDirectory() as home,
        Session(Path(home), [f"host:{DEVICE_MIB}MiB"], "fair") as client,
    ):
        batch = submit(client, Load(TABLE_MIB, 1, 0, ENDLESS).command(), name="batch")
        _computes(client, batch)
        before = client.job(batch).iterations
        notebook = submit(client, argv("cells.py", TABLE_MIB, cells, *THINKING_S), name="notebook")
        info, result = result_of(client, notebook)
        device = client.devices()[0]
        iterations = client.job(batch).iterations - before
        client.cancel(batch)
    if info.moved.out_bytes < cells // 2 * (TABLE_MIB << 20) // 2:
        raise RuntimeError("the notebook hardly ever had to leave the device")
    taken = sorted(result["cells_s"][1:])
    bound = Bound.of(device)
    detail = bound.as_dict() | {"iterations_of_the_batch_job": iterations, "longest_ms": round(taken[-1] * 1e3, 1)}
    return [
        measured_once("interactive", "next cell of an idle notebook, p50", "s", statistics.median(taken), **detail),
        measured_once(
            "interactive", "next cell, p95 / (lower bound of the turn + switch)", "ratio",
            taken[int(len(taken) * 0.95)] / bound.seconds, target=1.0, p95_s=round(taken[int(len(taken) * 0.95)], 3),
        ),
    ]  # fmt: skip


class Bound:
    """What the system itself has measured: the shortest turn that the batch job has, and the switch after it."""

    def __init__(self, switch_s: float) -> None:
        share = Settings().max_move_share_ppm / 1e6
        self.switch_s = switch_s
        self.turn_s = max(Fair.quantum_us / 1e6, switch_s / share)

    @classmethod
    def of(cls, device: DeviceInfo) -> Bound:
        moved, size = device.moved, TABLE_MIB << 20
        return cls((size * moved.out_us / moved.out_bytes + size * moved.in_us / moved.in_bytes) / 1e6)

    @property
    def seconds(self) -> float:
        return self.turn_s + self.switch_s

    def as_dict(self) -> dict[str, float]:
        return {"lower_bound_s": round(self.turn_s, 3), "switch_s": round(self.switch_s, 4)}


def _computes(client: DaemonClient, job: int) -> None:
    for told in facts_of(client.events(follow=True)):
        if isinstance(told, Fact) and told.what == What.TURN and told.job == job:
            return
