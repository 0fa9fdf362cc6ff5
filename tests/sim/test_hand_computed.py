"""Whole-device scheduling: small traces whose timelines are worked out by hand, in seconds.

The naive reference of these tests and the simulator must both give them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from carpool.core.model import Allocation, Micros, Outcome, Settings
from carpool.sim.driver import simulate
from carpool.sim.model.options import Options
from carpool.sim.model.trace_job import TraceJob
from tests.sim.reference import SECOND, Rule, schedule

Timeline = dict[str, list[tuple[int, int]]]


@dataclass(frozen=True)
class Case:
    """``timeline``: when each job has its devices; a job that never has any is refused."""

    name: str
    rule: Rule
    devices: int
    jobs: list[TraceJob]
    timeline: Timeline


def job(name: str, *, at: int, takes: int, gpus: int = 1) -> TraceJob:
    return TraceJob(name, at * SECOND, takes * SECOND, gpus=gpus)


def las(*limits_s: int, by_devices: bool = False) -> Rule:
    return Rule("las", limits=tuple(limit * SECOND for limit in limits_s), by_devices=by_devices)


# B needs every device and waits for A.  What came after B waits too, or goes ahead where it fits.
BLOCKED_GANG = [
    job("A", at=0, takes=10, gpus=2),
    job("B", at=1, takes=5, gpus=4),
    job("C", at=2, takes=3, gpus=1),
    job("D", at=2, takes=1, gpus=2),
]
# B is the shortest of those that wait at 1, but needs both devices.
SHORT_GANG = [
    job("A", at=0, takes=4, gpus=1),
    job("B", at=1, takes=2, gpus=2),
    job("C", at=1, takes=3, gpus=1),
    job("D", at=2, takes=3, gpus=1),
]
# The gang is shorter, but asks for more device time: 4 * 2 = 8 against 6 and 7.
WIDE_OR_LONG = [
    job("G", at=0, takes=4, gpus=2),
    job("A", at=0, takes=6),
    job("B", at=0, takes=7),
]
# At 1 the gang has 3 s left on 2 devices.
WIDE_AND_RUNNING = [job("G", at=0, takes=4, gpus=2), job("A", at=1, takes=5)]

FIFO = [
    # 0: A, 2 devices stay free.  1: B needs 4.  2: C and D would fit, but are behind B.
    # 10: A ends, B has all 4.  15: B ends, C (1) and D (2) start together.
    Case(
        "nobody goes ahead of a gang that waits",
        Rule("fifo"),
        4,
        BLOCKED_GANG,
        {"A": [(0, 10)], "B": [(10, 15)], "C": [(15, 18)], "D": [(15, 16)]},
    ),
    # 2: C takes 1 of the 2 free devices; D needs 2 and only 1 is left.  5: C ends, 2 are free, D runs until 6.
    # 10: A ends, B starts.
    Case(
        "backfill starts whatever fits",
        Rule("fifo", backfill=True),
        4,
        BLOCKED_GANG,
        {"A": [(0, 10)], "B": [(10, 15)], "C": [(2, 5)], "D": [(5, 6)]},
    ),
    # 5: A ends before B and C come, so B starts at once, and before C although C is shorter.
    Case(
        "a completion comes before the arrivals of the same instant",
        Rule("fifo"),
        1,
        [job("A", at=0, takes=5), job("B", at=5, takes=5), job("C", at=5, takes=1)],
        {"A": [(0, 5)], "B": [(5, 10)], "C": [(10, 11)]},
    ),
    Case(
        "equal times keep the order of the file, not of the names",
        Rule("fifo"),
        1,
        [job("B", at=0, takes=3), job("C", at=0, takes=2), job("A", at=0, takes=1)],
        {"B": [(0, 3)], "C": [(3, 5)], "A": [(5, 6)]},
    ),
    Case(
        "a file need not be in the order of submission",
        Rule("fifo"),
        1,
        [job("B", at=2, takes=3), job("A", at=0, takes=4), job("C", at=2, takes=1)],
        {"A": [(0, 4)], "B": [(4, 7)], "C": [(7, 8)]},
    ),
    # X needs 3 of 2 devices.  B must not wait behind it, only for A.
    Case(
        "what can never run is refused and blocks nobody",
        Rule("fifo"),
        2,
        [job("A", at=0, takes=4, gpus=2), job("X", at=1, takes=9, gpus=3), job("B", at=1, takes=1)],
        {"A": [(0, 4)], "X": [], "B": [(4, 5)]},
    ),
    # 3: A and B end at once, so the gang C finds both devices free; D starts when C ends.
    Case(
        "simultaneous completions free their devices together",
        Rule("fifo"),
        2,
        [job("A", at=0, takes=3), job("B", at=1, takes=2), job("C", at=2, takes=2, gpus=2), job("D", at=2, takes=1)],
        {"A": [(0, 3)], "B": [(1, 3)], "C": [(3, 5)], "D": [(5, 6)]},
    ),
    # Nothing runs from 2 to 7.
    Case(
        "a gap in the trace",
        Rule("fifo"),
        2,
        [job("A", at=0, takes=2), job("B", at=7, takes=2), job("C", at=8, takes=2)],
        {"A": [(0, 2)], "B": [(7, 9)], "C": [(8, 10)]},
    ),
]

SJF = [
    # A runs to its end although shorter ones come.  6: C (2), then B and D (4 each) in the order in which they came.
    Case(
        "shortest first, without preemption",
        Rule("sjf"),
        1,
        [job("A", at=0, takes=6), job("B", at=1, takes=4), job("C", at=2, takes=2), job("D", at=2, takes=4)],
        {"A": [(0, 6)], "C": [(6, 8)], "B": [(8, 12)], "D": [(12, 16)]},
    ),
    # One pass after all arrivals of the instant: A does not start merely because it stands first.
    Case(
        "all arrivals of an instant are compared",
        Rule("sjf"),
        1,
        [job("A", at=0, takes=6), job("B", at=0, takes=1), job("C", at=0, takes=3)],
        {"B": [(0, 1)], "C": [(1, 4)], "A": [(4, 10)]},
    ),
    # 1: B (2 s) is first and needs 2 devices, 1 is free: stop.  4: A ends, B runs until 6; then C and D.
    Case(
        "strict: nobody goes ahead of the shortest",
        Rule("sjf"),
        2,
        SHORT_GANG,
        {"A": [(0, 4)], "B": [(4, 6)], "C": [(6, 9)], "D": [(6, 9)]},
    ),
    # 1: B does not fit, C does, until 4.  2: no device is free for D.  4: A and C end; B (2 s) before D (3 s).
    Case(
        "backfill behind the shortest",
        Rule("sjf", backfill=True),
        2,
        SHORT_GANG,
        {"A": [(0, 4)], "B": [(4, 6)], "C": [(1, 4)], "D": [(6, 9)]},
    ),
]

SRTF = [
    # 1: A has 7 left, B needs 4.  2: B has 3 left, C needs 2.  4: C ends; B 3 before A 7.  7: B ends.
    Case(
        "the shorter one preempts",
        Rule("srtf"),
        1,
        [job("A", at=0, takes=8), job("B", at=1, takes=4), job("C", at=2, takes=2)],
        {"A": [(0, 1), (7, 14)], "B": [(1, 2), (4, 7)], "C": [(2, 4)]},
    ),
    # 2: A has 3 left and B needs 3; B is appended behind A and the sort is stable.
    Case(
        "a tie leaves the running job its device",
        Rule("srtf"),
        1,
        [job("A", at=0, takes=5), job("B", at=2, takes=3), job("C", at=2, takes=3)],
        {"A": [(0, 5)], "B": [(5, 8)], "C": [(8, 11)]},
    ),
    # 3: A ends, and of what comes then D is the shortest; B and C tie.
    Case(
        "completion, arrivals and ties in one instant",
        Rule("srtf"),
        1,
        [job("A", at=0, takes=3), job("B", at=3, takes=2), job("C", at=3, takes=2), job("D", at=3, takes=1)],
        {"A": [(0, 3)], "D": [(3, 4)], "B": [(4, 6)], "C": [(6, 8)]},
    ),
    # 1: H has 2 left, P needs 6, A has 8 left: the list becomes H, P, A.  P (2 devices) is skipped beside H, A runs.
    # 3: H ends.  A has 6 left and so has P; the list says P, A, and the stable sort keeps that: P preempts A.
    Case(
        "ties keep the order of the list, which need not be that of the file",
        Rule("srtf"),
        2,
        [job("H", at=0, takes=3), job("A", at=0, takes=9), job("P", at=1, takes=6, gpus=2)],
        {"H": [(0, 3)], "A": [(0, 3), (9, 15)], "P": [(3, 9)]},
    ),
    # 1: A 5 left, G 4 (2 devices), S 1.  The order is S, G, A: S runs, G is skipped, A keeps its device.
    # 2: S ends; A has 4 left and so has G, which stands before it: G runs until 6, then A its last 4.
    Case(
        "a gang is skipped while it does not fit and preempts when it does",
        Rule("srtf"),
        2,
        [job("A", at=0, takes=6), job("G", at=1, takes=4, gpus=2), job("S", at=1, takes=1)],
        {"A": [(0, 2), (6, 10)], "G": [(2, 6)], "S": [(1, 2)]},
    ),
    # 2: B (1 s, both devices) is first; both others lose their devices although only 1 s of work came.
    Case(
        "a short gang displaces several",
        Rule("srtf"),
        2,
        [job("A", at=0, takes=4), job("C", at=0, takes=5), job("B", at=2, takes=1, gpus=2)],
        {"A": [(0, 2), (3, 5)], "C": [(0, 2), (3, 6)], "B": [(2, 3)]},
    ),
    Case(
        "a gang that is the shortest goes first",
        Rule("srtf"),
        2,
        WIDE_OR_LONG,
        {"G": [(0, 4)], "A": [(4, 10)], "B": [(4, 11)]},
    ),
    # 1: G has 3 left, A needs 5.
    Case("the gang is nearly done", Rule("srtf"), 2, WIDE_AND_RUNNING, {"G": [(0, 4)], "A": [(4, 9)]}),
]

SRSF = [
    # 0: A 6, B 7, G 8.  6: A ends; B has 1 left, G needs both devices.  7: B ends.
    Case("narrow jobs first", Rule("srsf"), 2, WIDE_OR_LONG, {"G": [(7, 11)], "A": [(0, 6)], "B": [(0, 7)]}),
    # 1: G has 3 * 2 = 6 left, A needs 5: A runs, and G does not fit beside it.  6: G goes on for 3.
    Case("a narrow job preempts a gang", Rule("srsf"), 2, WIDE_AND_RUNNING, {"G": [(0, 1), (6, 9)], "A": [(1, 6)]}),
    # 1: G has 6 left and A needs 6: G stands first.
    Case(
        "a tie leaves the gang its devices",
        Rule("srsf"),
        2,
        [job("G", at=0, takes=4, gpus=2), job("A", at=1, takes=6)],
        {"G": [(0, 4)], "A": [(4, 10)]},
    ),
    # 0: B needs 4 * 2 = 8, A 9, G 6 * 3 = 18: B and A take 3 of the 4 devices, G is skipped.
    # 4: B ends; A has 5 left, G fits beside it (1 + 3).
    # 5: S (2) comes; A 4, S 2, G 18 - 3 = 15: S and A run, 2 devices are left, G loses its 3.
    # 7: S ends, A has 2 left, G goes on: 5 s until 12.  9: A ends.
    Case(
        "three widths",
        Rule("srsf"),
        4,
        [
            job("A", at=0, takes=9),
            job("G", at=0, takes=6, gpus=3),
            job("B", at=0, takes=4, gpus=2),
            job("S", at=5, takes=2),
        ],
        {"A": [(0, 9)], "G": [(4, 5), (7, 12)], "B": [(0, 4)], "S": [(5, 7)]},
    ),
]

LAS = [
    # 1: A, B in the first queue; A is at its head.  2: A has had 2 and moves; B runs.  4: B has had 2 and moves behind
    # A, which runs on to 5 of service at 7 and moves to the last queue.  7: B does its last second.  8: A does its own.
    Case(
        "three queues",
        las(2, 5),
        1,
        [job("A", at=0, takes=6), job("B", at=1, takes=3)],
        {"A": [(0, 2), (4, 7), (8, 9)], "B": [(2, 4), (7, 8)]},
    ),
    # A passes both limits alone: moved, but never stopped.
    Case("alone nobody is preempted", las(2, 5), 1, [job("A", at=0, takes=10)], {"A": [(0, 10)]}),
    # 2: A has had 2 at the very moment at which it ends: it ends.
    Case(
        "a job that ends at its limit ends",
        las(2, 5),
        1,
        [job("A", at=0, takes=2), job("B", at=1, takes=1)],
        {"A": [(0, 2)], "B": [(2, 3)]},
    ),
    # 2: B comes and A reaches its limit.  Were A still in the first queue, it would stand before B.
    Case(
        "moved at exactly that moment, before the pass",
        las(2, 5),
        1,
        [job("A", at=0, takes=4), job("B", at=2, takes=1)],
        {"A": [(0, 2), (3, 5)], "B": [(2, 3)]},
    ),
    # 2: B comes; A has a second left in the first queue and stands before it.  3: A moves, B runs.  5: A's last second.
    Case(
        "a newcomer joins the tail",
        las(3, 9),
        1,
        [job("A", at=0, takes=4), job("B", at=2, takes=2)],
        {"A": [(0, 3), (5, 6)], "B": [(3, 5)]},
    ),
    # 0: H and B run; A (2 devices) is skipped, so after the pass the queue is H, B, A.
    # 2: H ends, B stays at the head and keeps its device; A does not fit.  4: B ends, A starts.
    Case(
        "after a pass those that run stand before those that wait",
        las(10, 20),
        2,
        [job("H", at=0, takes=2), job("A", at=0, takes=3, gpus=2), job("B", at=0, takes=4)],
        {"H": [(0, 2)], "A": [(4, 7)], "B": [(0, 4)]},
    ),
    # 3 devices, limit of 4 device-seconds.  0: H (2) and B (1) run, A (2) waits: queue H, B, A.
    # 2: H ends (at its limit), A starts: queue B, A.  4: B has had 4 * 1 and A 2 * 2: both move, A first because it
    # came first.  N comes: it takes 1 device, A 2, nothing is left for B.  5: N ends, B goes on with its last 2.
    Case(
        "several moves at once are in arrival order",
        las(4, 100, by_devices=True),
        3,
        [
            job("H", at=0, takes=2, gpus=2),
            job("A", at=0, takes=4, gpus=2),
            job("B", at=0, takes=6),
            job("N", at=4, takes=1),
        ],
        {"H": [(0, 2)], "A": [(2, 6)], "B": [(0, 4), (5, 7)], "N": [(4, 5)]},
    ),
    # 2 devices.  0: G has both.  Service in seconds: G reaches 4 at 4, and B goes ahead of it.
    # 4: B runs, G does not fit beside it.  8: B has had 4 and moves behind G: G goes on and ends at 10; then B.
    Case(
        "limits in seconds",
        las(4, 8),
        2,
        [job("G", at=0, takes=6, gpus=2), job("B", at=1, takes=5)],
        {"G": [(0, 4), (8, 10)], "B": [(4, 8), (10, 11)]},
    ),
    # The same in device-seconds: G reaches 4 at 2.  2: B runs until it has had 4, at 6, and moves behind G.
    # 6: G has had 4 and reaches 8 at 8, moves to the last queue; B does its last second, G its last 2.
    Case(
        "limits in device-seconds",
        las(4, 8, by_devices=True),
        2,
        [job("G", at=0, takes=6, gpus=2), job("B", at=1, takes=5)],
        {"G": [(0, 2), (6, 8), (9, 11)], "B": [(2, 6), (8, 9)]},
    ),
    # Defaults: 3250 s and 7200 s.  3250: A moves, B runs until 3750, then A its last 750.
    Case(
        "default limits",
        Rule("las", limits=(3250 * SECOND, 7200 * SECOND)),
        1,
        [job("A", at=0, takes=4000), job("B", at=1000, takes=500)],
        {"A": [(0, 3250), (3750, 4500)], "B": [(3250, 3750)]},
    ),
]

CASES = [*FIFO, *SJF, *SRTF, *SRSF, *LAS]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule.policy}: {case.name}")


def micros(intervals: list[tuple[int, int]]) -> list[tuple[Micros, Micros]]:
    return [(begin * SECOND, end * SECOND) for begin, end in intervals]


def test_cases_are_complete() -> None:
    """A slip of the pen would otherwise be looked for in the scheduler."""
    wrong = [f"{case.rule.policy}: {case.name}: {what}" for case in CASES for what in slips(case)]
    assert not wrong, "\n".join(wrong)


def slips(case: Case) -> Iterator[str]:
    if {one.id for one in case.jobs} != set(case.timeline):
        yield "its timeline has other jobs"
    for one in case.jobs:
        intervals = micros(case.timeline.get(one.id, []))
        if intervals and sum(end - begin for begin, end in intervals) != one.duration_us:
            yield f"the intervals of {one.id} are not as long as its duration"


@every_case
def test_the_reference_gives_the_timeline(case: Case) -> None:
    expected = schedule(case.jobs, case.devices, case.rule)
    assert {one.job.id: one.intervals for one in expected} == {
        name: micros(intervals) for name, intervals in case.timeline.items()
    }
    for one in expected:
        assert one.outcome == (Outcome.SUCCEEDED if one.intervals else Outcome.REFUSED)
        assert one.preemptions == max(len(one.intervals) - 1, 0)


@every_case
def test_the_simulator_gives_the_timeline(case: Case) -> None:
    check(case, case.rule.settings())


def check(case: Case, settings: Settings) -> None:
    result = simulate(case.jobs, Options(devices=case.devices, settings=settings, record=True))
    assert result.recording is not None
    assert [one.job for one in result.jobs] == case.jobs
    for index, one in enumerate(result.jobs):
        intervals = micros(case.timeline[one.job.id])
        spans = [span for span in result.recording.spans if span.job == index]
        assert sorted((span.begin_us, span.end_us) for span in spans) == sorted(intervals * one.job.gpus), one.job.id
        assert one.preemptions == max(len(intervals) - 1, 0), one.job.id
        assert one.service_us == sum(end - begin for begin, end in intervals), one.job.id
        if intervals:
            assert (one.outcome, one.started_us, one.ended_us) == (
                Outcome.SUCCEEDED,
                intervals[0][0],
                intervals[-1][1],
            ), one.job.id
            assert one.waiting_us == one.ended_us - one.job.submit_us - one.job.duration_us, one.job.id
        else:
            assert (one.outcome, one.started_us) == (Outcome.REFUSED, None), one.job.id
            assert one.reason, one.job.id


def test_fifo_is_strict_unless_told_otherwise() -> None:
    check(FIFO[0], Settings(policy="fifo", allocation=Allocation.DEVICES))


def test_las_knows_its_limits_by_default() -> None:
    check(LAS[-1], Settings(policy="las", allocation=Allocation.DEVICES))


def test_a_device_in_use_counts_as_busy() -> None:
    """BLOCKED_GANG: 10 * 2 + 5 * 4 + 3 * 1 + 1 * 2 = 45 device-seconds."""
    result = simulate(BLOCKED_GANG, Options(devices=4, settings=Rule("fifo").settings()))
    assert result.busy_us == 45 * SECOND
    assert result.recording is None
