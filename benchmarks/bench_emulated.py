"""What Carpool costs PyTorch's CUDA build, on an emulated GPU whose kernels compute nothing: the worst case for a gate.

Loops that are compared live side by side and are asked in turns; a process's own luck with its addresses changes its
speed by a few percent, so each run has new ones, and says how far two bare ones are apart.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from benchmarks.emulated import PYTHON, ROOT, Loop, Loops, loops, on_gpu
from benchmarks.figures import Figure, median_figure, rounds_of
from benchmarks.jobs import output_of
from tools.gpu_check.measurements.handover import gaps_us, turns_of

#: Kind of loop, with the bound of its ratio; None: reported.
BOUNDS = {"eager": 1.02, "graph": 1.01, "memory": None}
NAMES = {
    "eager": "launch-bound MLP, eager",
    "graph": "launch-bound MLP, one graph",
    "memory": "launch-bound MLP, segments come and go (no cache)",
}
MORE = {"memory": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}}
#: Seconds of one question.
PIECE_S = 0.05
EAGER_TURNS = {"quantum_us": 0, "max_switch_share_ppm": 1_000_000, "max_move_share_ppm": 1_000_000, "max_lanes": 1}
HANDOVER = ROOT / "tools" / "gpu_check" / "programs" / "handover.py"
SNAPSHOT = """
import json
from tools.gpu_check.measurements.snapshot import snapshot_cost
print(json.dumps(snapshot_cost()))
"""


def run(quick: bool) -> list[Figure]:
    runs = 1 if quick else rounds_of(3)
    figures = [figure for kind in BOUNDS for figure in _iterations(kind, runs, 6 if quick else 60)]
    return [
        *figures,
        _start(2 if quick else 16),
        *_hand_over(runs, 8_000 if quick else 20_000),
        _snapshot(runs),
        _lane(runs, 1 if quick else 5),
    ]


def _iterations(kind: str, runs: int, pairs: int) -> list[Figure]:
    ours, bare, detail = [], [], []
    for _ in range(runs):
        with loops(**MORE.get(kind, {})) as started:
            first, second = started.bare(kind), started.bare(kind)
            job = started.job(started.daemon(), kind)
            found = _asked_in_turns([first, job, second], pairs)
        ours.append(_middle(found[1], found[0], found[2]))
        bare.append(_middle(found[2], found[0]))
        detail.append([round(statistics.median(each) * 1e6, 1) for each in found])
    name = NAMES[kind]
    return [
        median_figure(
            "emulated GPU", f"{name}, Carpool / bare", "ratio", ours, target=BOUNDS[kind], detail={"us": detail}
        ),
        median_figure("emulated GPU", f"{name}, bare / another bare process", "ratio", bare),
    ]


def _asked_in_turns(started: Sequence[Loop], pairs: int) -> list[list[float]]:
    """Seconds per iteration of each, one after the other, in an order that changes."""
    count = max(1, round(PIECE_S / (started[0].seconds(20) / 20)))
    found: list[list[float]] = [[] for _ in started]
    for order in itertools.islice(itertools.cycle(itertools.permutations(range(len(started)))), pairs):
        for number in order:
            found[number].append(started[number].seconds(count) / count)
    return found


def _middle(of: Sequence[float], *to: Sequence[float]) -> float:
    """The median of the ratios; to the mean, where there are several."""
    return statistics.median(each / statistics.mean(others) for each, *others in zip(of, *to, strict=True))


def _start(pairs: int) -> Figure:
    """From asking for the process to the end of its first iteration; every other pair has the job first."""
    with loops() as started:
        client = started.daemon()
        ways = [lambda: started.bare("eager"), lambda: started.job(client, "eager")]
        found = [_pair(ways, job_first=bool(number % 2)) for number in range(pairs)]
    name = "start to the end of the first iteration, more than bare"
    more, detail = [job - bare for bare, job in found], {"bare": [round(bare, 3) for bare, _ in found]}
    return median_figure("emulated GPU", name, "s", more, target=0.2, detail=detail)


def _pair(ways: Sequence[Callable[[], Loop]], job_first: bool) -> tuple[float, float]:
    """Seconds of the bare process, and of the job."""
    if job_first:
        job, bare = (_until_first(way()) for way in reversed(ways))
    else:
        bare, job = (_until_first(way()) for way in ways)
    return bare, job


def _until_first(loop: Loop) -> float:
    """Seconds; ends the loop."""
    loop.ask(1)
    seconds = loop.answer()[1]
    loop.connection.close()
    return seconds


def _hand_over(runs: int, iterations: int) -> list[Figure]:
    gaps = [_gaps_us(iterations) for _ in range(runs)]
    p50 = [statistics.median(each) for each in gaps]
    p99 = [each[len(each) * 99 // 100] for each in gaps]
    name = "hand-over between two jobs, last kernel to first kernel"
    detail = {"switches": [len(each) for each in gaps]}
    return [
        median_figure("emulated GPU", f"{name}, p50", "us", p50, target=100.0, detail=detail),
        median_figure("emulated GPU", f"{name}, p99", "us", p99, target=1000.0),
    ]


def _gaps_us(iterations: int) -> list[float]:
    """Ascending."""
    with loops(PYTHONPATH=str(ROOT / "src")) as started:
        client = started.daemon(**EAGER_TURNS)
        jobs = [started.submit(client, [PYTHON, str(HANDOVER), str(iterations)]) for _ in range(2)]
        return gaps_us(turns_of({job: output_of(client, job)[1] for job in jobs}))


def _snapshot(runs: int) -> Figure:
    found = [on_gpu(SNAPSHOT)["ms, median"] for _ in range(runs)]
    return median_figure("emulated GPU", "the allocator's snapshot at 1,500 live blocks", "ms", found, target=2.0)


def _lane(runs: int, times: int) -> Figure:
    """Two jobs with kernels of 20 us, at once / one after the other."""
    ratios = []
    for _ in range(runs):
        with ExitStack() as stack:
            started = Loops(stack, {"EMULATOR_KERNEL_US": "20"})
            client = started.daemon(max_lanes=1)
            jobs = [started.job(client, "eager") for _ in range(2)]
            ratios += [_throughput(jobs) for _ in range(times)]
    return median_figure(
        "emulated GPU",
        "two jobs in a lane, throughput / one after the other",
        "ratio",
        ratios,
        target=0.98,
        at_least=True,
    )


def _throughput(jobs: Sequence[Loop], seconds: float = 2.0) -> float:
    count = round(seconds / (jobs[0].seconds(20) / 20))
    alone = sum(job.seconds(count) for job in jobs)
    for job in jobs:
        job.ask(count)
    return alone / max(job.answer()[0] for job in jobs)
