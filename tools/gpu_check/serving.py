"""Requests for models through `carpool serve` on a GPU, beside training: what the measurements of services are made of.

Processes and models are those of the host's benchmarks.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from benchmarks.bench_serving import PLAIN, READY, Requests, Taken, Without, note
from benchmarks.bench_serving_load import Service, window
from benchmarks.jobs import environment
from benchmarks.on_call import Listener, OnCall
from benchmarks.through_serve import Asked, Served
from benchmarks.workloads.hosted import batch, weights_bytes
from carpool.protocol.api import PolicyRequest, SubmitRequest
from tests.live import python_path
from tools.gpu_check.daemon import SOURCE
from tools.gpu_check.registry import Figures, require

PREEMPTING, COLD, BOTH = "preempting", "cold", "preempting, cold"
#: Of Carpool's ways, and those without it.
BASES = {
    **dict.fromkeys((PREEMPTING, BOTH, COLD), READY),
    **dict.fromkeys((READY, "one process", "unmanaged", "stop-and-start"), PLAIN),
}
WARM_UPS = 3
MIB = 1 << 20
WARM_S = 2.0  # of training
PATIENCE_S = 60.0
REQUESTS_PER_S = 20


class Place(NamedTuple):
    """``device`` as for ``carpool up``; ``kind``: what PyTorch calls it."""

    device: str
    kind: str


GPU = Place("cuda:0", "cuda")


class Stage(NamedTuple):
    served: Served
    listener: Listener
    training: OnCall  # a job beside the service, which rests
    model: str


@contextmanager
def served(model: str, place: Place) -> Iterator[Served]:
    """The model can be asked."""
    with (
        tempfile.TemporaryDirectory() as name,
        patch.dict(os.environ, PYTHONPATH=python_path(SOURCE)),
        Served(Path(name), [model], place.device, threads=os.cpu_count() or 1) as made,
    ):
        yield made


@contextmanager
def stage(model: str, place: Place) -> Iterator[Stage]:
    """The model has been asked, training has trained for a while."""
    with (
        tempfile.TemporaryDirectory() as name,
        patch.dict(os.environ, PYTHONPATH=python_path(SOURCE)),
        ExitStack() as stack,
    ):
        listener = stack.enter_context(closing(Listener(Path(name), place.kind)))
        served = stack.enter_context(Served(Path(name), [model], place.device, threads=os.cpu_count() or 1))
        training = stack.enter_context(listener.job(served.client))
        training.tell("train")
        time.sleep(WARM_S)
        training.tell("rest")
        yield Stage(served, listener, training, model)


def private_memory(served: Served, model: str, asks: int) -> Figures:
    """Of workers, in MiB: before their first request, and how much more after so many.  No weights belong into it."""
    before = _anonymous(served)
    for _ in range(asks):
        served.ask(model, batch(model))
    more = max(after - before.get(pid, 0) for pid, after in _anonymous(served).items())
    own = {"before": max(before.values()), "more": more}
    return {"weights, MiB": weights_bytes(model) / MIB} | {f"RssAnon {when}, MiB": b / MIB for when, b in own.items()}


def _anonymous(served: Served) -> dict[int, int]:
    """Bytes of memory of its own, by process."""
    pids = [job.pid for job in served.client.jobs() if job.phase == "running" and job.pid is not None]
    lines = {pid: Path(f"/proc/{pid}/status").read_text() for pid in pids}
    return {pid: int(text.partition("RssAnon:")[2].split()[0]) << 10 for pid, text in lines.items()}


def ways(on: Stage, rounds: int, starts: int) -> Figures:
    """``rounds`` of requests; of them, ``starts`` with processes that are started for a single one."""
    taken: Taken = defaultdict(list)
    requests = Requests(on.served, on.model, on.training)
    with ExitStack() as stack:
        without = Without(on.listener, on.model, stack, core=None)
        for ask in (requests.ask, requests.preempt):
            for _ in range(WARM_UPS):
                ask(on.model)
        for number in range(rounds):
            _ask_each_way(on, requests, taken)
            without.at_once(taken)
            if number < starts:
                without.started(taken)
    return figures_of(taken)


def _ask_each_way(on: Stage, requests: Requests, taken: Taken) -> None:
    size = weights_bytes(on.model)

    def asked(way: str, ask: Callable[[str], Asked]) -> None:
        before = on.served.copied_bytes(on.model)
        note(taken, way, ask(on.model))
        copied = on.served.copied_bytes(on.model) - before
        require((copied > size // 2) == (way in (COLD, BOTH)), f"{way}: {copied} of {size} bytes of weights came")

    asked(READY, requests.ask)
    asked(PREEMPTING, requests.preempt)
    drop_weights(on)
    asked(COLD, requests.ask)
    drop_weights(on)
    asked(BOTH, requests.preempt)


def drop_weights(on: Stage) -> None:
    """A job that is promised all free memory comes before weights that nobody uses; it ends at once."""
    (device,) = on.served.client.devices()
    size = device.free_bytes - weights_bytes(on.model) // 2  # of foreign processes' memory a little more may be free
    job = on.served.client.submit(SubmitRequest(["true"], "/", environment(), persistent_bytes=size))
    info = on.served.client.wait(job, PATIENCE_S)
    require(info.outcome == "succeeded", f"the job that makes weights leave: {info.phase}, {info.reason}")


def figures_of(taken: Taken) -> Figures:
    figures: Figures = {}
    for way, base in BASES.items():
        ours, theirs = median_ms(taken[way]), median_ms(taken[base])
        figures |= {f"{way}, ms": ours, f"{way}, ms more than {base}": ours - theirs, f"{way} / {base}": ours / theirs}
    figures[f"{PLAIN}, ms"] = median_ms(taken[PLAIN])
    usual = median_ms(taken[f"{READY}: first layer"])
    figures[f"{READY}, request to first layer, ms"] = usual
    for way in (PREEMPTING, COLD, BOTH):
        figures[f"{way}, first layer later than ready, ms"] = median_ms(taken[f"{way}: first layer"]) - usual
    return figures


def run_ahead(on: Stage, bounds_us: tuple[int, ...], asks: int, seconds: float) -> Figures:
    """By bound: ``asks`` requests that preempt, against as many ready ones; training for ``seconds``.  0: no bound."""
    requests, service = Requests(on.served, on.model, on.training), Service(on.served, on.model)
    load = REQUESTS_PER_S * service.computing_s
    figures: Figures = {}
    with on.listener.plain() as plain:
        figures["plain training, iterations/s"] = window(plain, service, 0, seconds).per_s
    for bound_us in bounds_us:
        on.served.client.set_policy(PolicyRequest(settings={"run_ahead_us": bound_us}))
        ready, preempting = zip(
            *((requests.ask(on.model), requests.preempt(on.model)) for _ in range(asks)), strict=True
        )
        usual, late = ([each.answered_s for each in side] for side in (ready, preempting))
        busy = window(on.training, service, load, seconds)
        figures |= {
            f"{bound_us} us: preempting, ms more than ready": median_ms(late) - median_ms(usual),
            f"{bound_us} us: preempting, ms more than ready, worst": 1000 * max(late) - median_ms(usual),
            f"{bound_us} us: training without requests, iterations/s": window(on.training, service, 0, seconds).per_s,
            f"{bound_us} us: training beside {REQUESTS_PER_S} requests/s, iterations/s": busy.per_s,
            f"{bound_us} us: share of the time in which requests are computed": busy.share,
        }
    return figures


def median_ms(values: list[float]) -> float:
    return 1000 * statistics.median(values)
