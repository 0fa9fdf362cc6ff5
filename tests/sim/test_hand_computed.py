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
from tests.sim.reference import SECOND, Rule, jobs_of, schedule
from tests.sim.test_reference import check

Timeline = dict[str, list[tuple[Micros, Micros]]]


@dataclass(frozen=True)
class Case:
    """``timeline``: when each job has its devices; a job that never has any is refused."""

    name: str
    rule: Rule
    devices: int
    jobs: list[TraceJob]
    timeline: Timeline


def case(name: str, rule: Rule, devices: int, jobs: str, timeline: str) -> Case:
    """``timeline`` as in "A 0-1 7-14, X": from when to when A has its devices; X never has any."""
    had = {}
    for one, *spans in (each.split() for each in timeline.split(", ")):
        had[one] = [(int(begin) * SECOND, int(end) * SECOND) for begin, end in (span.split("-") for span in spans)]
    return Case(name, rule, devices, jobs_of(jobs), had)


def las(*limits_s: int, by_devices: bool = False) -> Rule:
    return Rule("las", limits=tuple(limit * SECOND for limit in limits_s), by_devices=by_devices)


# B needs every device and waits for A.  What came after B waits too, or goes ahead where it fits.
BLOCKED_GANG = "A 0+10x2, B 1+5x4, C 2+3, D 2+1x2"
# B is the shortest of those that wait at 1, but needs both devices.
SHORT_GANG = "A 0+4, B 1+2x2, C 1+3, D 2+3"
# The gang is shorter, but asks for more device time: 4 * 2 = 8 against 6 and 7.
WIDE_OR_LONG = "G 0+4x2, A 0+6, B 0+7"
# At 1 the gang has 3 s left on 2 devices.
WIDE_AND_RUNNING = "G 0+4x2, A 1+5"

FIFO = [
    # 0: A, 2 devices stay free.  1: B needs 4.  2: C and D would fit, but are behind B.
    # 10: A ends, B has all 4.  15: B ends, C (1) and D (2) start together.
    case("nobody goes ahead of a gang that waits", Rule("fifo"), 4, BLOCKED_GANG, "A 0-10, B 10-15, C 15-18, D 15-16"),
    # 2: C takes 1 of the 2 free devices; D needs 2 and only 1 is left.  5: C ends, 2 are free, D runs until 6.
    # 10: A ends, B starts.
    case(
        "backfill starts whatever fits", Rule("fifo", backfill=True), 4, BLOCKED_GANG, "A 0-10, B 10-15, C 2-5, D 5-6"
    ),
    # 5: A ends before B and C come, so B starts at once, and before C although C is shorter.
    case(
        "a completion comes before the arrivals of the same instant",
        Rule("fifo"),
        1,
        "A 0+5, B 5+5, C 5+1",
        "A 0-5, B 5-10, C 10-11",
    ),
    case(
        "equal times keep the order of the file, not of the names",
        Rule("fifo"),
        1,
        "B 0+3, C 0+2, A 0+1",
        "B 0-3, C 3-5, A 5-6",
    ),
    case(
        "a file need not be in the order of submission", Rule("fifo"), 1, "B 2+3, A 0+4, C 2+1", "A 0-4, B 4-7, C 7-8"
    ),
    # X needs 3 of 2 devices.  B must not wait behind it, only for A.
    case(
        "what can never run is refused and blocks nobody", Rule("fifo"), 2, "A 0+4x2, X 1+9x3, B 1+1", "A 0-4, X, B 4-5"
    ),
    # 3: A and B end at once, so the gang C finds both devices free; D starts when C ends.
    case(
        "simultaneous completions free their devices together",
        Rule("fifo"),
        2,
        "A 0+3, B 1+2, C 2+2x2, D 2+1",
        "A 0-3, B 1-3, C 3-5, D 5-6",
    ),
    # Nothing runs from 2 to 7.
    case("a gap in the trace", Rule("fifo"), 2, "A 0+2, B 7+2, C 8+2", "A 0-2, B 7-9, C 8-10"),
]

SJF = [
    # A runs to its end although shorter ones come.  6: C (2), then B and D (4 each) in the order in which they came.
    case(
        "shortest first, without preemption",
        Rule("sjf"),
        1,
        "A 0+6, B 1+4, C 2+2, D 2+4",
        "A 0-6, C 6-8, B 8-12, D 12-16",
    ),
    # One pass after all arrivals of the instant: A does not start merely because it stands first.
    case("all arrivals of an instant are compared", Rule("sjf"), 1, "A 0+6, B 0+1, C 0+3", "B 0-1, C 1-4, A 4-10"),
    # 1: B (2 s) is first and needs 2 devices, 1 is free: stop.  4: A ends, B runs until 6; then C and D.
    case("strict: nobody goes ahead of the shortest", Rule("sjf"), 2, SHORT_GANG, "A 0-4, B 4-6, C 6-9, D 6-9"),
    # 1: B does not fit, C does, until 4.  2: no device is free for D.  4: A and C end; B (2 s) before D (3 s).
    case("backfill behind the shortest", Rule("sjf", backfill=True), 2, SHORT_GANG, "A 0-4, B 4-6, C 1-4, D 6-9"),
]

SRTF = [
    # 1: A has 7 left, B needs 4.  2: B has 3 left, C needs 2.  4: C ends; B 3 before A 7.  7: B ends.
    case("the shorter one preempts", Rule("srtf"), 1, "A 0+8, B 1+4, C 2+2", "A 0-1 7-14, B 1-2 4-7, C 2-4"),
    # 2: A has 3 left and B needs 3; B is appended behind A and the sort is stable.
    case("a tie leaves the running job its device", Rule("srtf"), 1, "A 0+5, B 2+3, C 2+3", "A 0-5, B 5-8, C 8-11"),
    # 3: A ends, and of what comes then D is the shortest; B and C tie.
    case(
        "completion, arrivals and ties in one instant",
        Rule("srtf"),
        1,
        "A 0+3, B 3+2, C 3+2, D 3+1",
        "A 0-3, D 3-4, B 4-6, C 6-8",
    ),
    # 1: H has 2 left, P needs 6, A has 8 left: the list becomes H, P, A.  P (2 devices) is skipped beside H, A runs.
    # 3: H ends.  A has 6 left and so has P; the list says P, A, and the stable sort keeps that: P preempts A.
    case(
        "ties keep the order of the list, which need not be that of the file",
        Rule("srtf"),
        2,
        "H 0+3, A 0+9, P 1+6x2",
        "H 0-3, A 0-3 9-15, P 3-9",
    ),
    # 1: A 5 left, G 4 (2 devices), S 1.  The order is S, G, A: S runs, G is skipped, A keeps its device.
    # 2: S ends; A has 4 left and so has G, which stands before it: G runs until 6, then A its last 4.
    case(
        "a gang is skipped while it does not fit and preempts when it does",
        Rule("srtf"),
        2,
        "A 0+6, G 1+4x2, S 1+1",
        "A 0-2 6-10, G 2-6, S 1-2",
    ),
    # 2: B (1 s, both devices) is first; both others lose their devices although only 1 s of work came.
    case("a short gang displaces several", Rule("srtf"), 2, "A 0+4, C 0+5, B 2+1x2", "A 0-2 3-5, C 0-2 3-6, B 2-3"),
    case("a gang that is the shortest goes first", Rule("srtf"), 2, WIDE_OR_LONG, "G 0-4, A 4-10, B 4-11"),
    # 1: G has 3 left, A needs 5.
    case("the gang is nearly done", Rule("srtf"), 2, WIDE_AND_RUNNING, "G 0-4, A 4-9"),
]

SRSF = [
    # 0: A 6, B 7, G 8.  6: A ends; B has 1 left, G needs both devices.  7: B ends.
    case("narrow jobs first", Rule("srsf"), 2, WIDE_OR_LONG, "G 7-11, A 0-6, B 0-7"),
    # 1: G has 3 * 2 = 6 left, A needs 5: A runs, and G does not fit beside it.  6: G goes on for 3.
    case("a narrow job preempts a gang", Rule("srsf"), 2, WIDE_AND_RUNNING, "G 0-1 6-9, A 1-6"),
    # 1: G has 6 left and A needs 6: G stands first.
    case("a tie leaves the gang its devices", Rule("srsf"), 2, "G 0+4x2, A 1+6", "G 0-4, A 4-10"),
    # 0: B needs 4 * 2 = 8, A 9, G 6 * 3 = 18: B and A take 3 of the 4 devices, G is skipped.
    # 4: B ends; A has 5 left, G fits beside it (1 + 3).
    # 5: S (2) comes; A 4, S 2, G 18 - 3 = 15: S and A run, 2 devices are left, G loses its 3.
    # 7: S ends, A has 2 left, G goes on: 5 s until 12.  9: A ends.
    case("three widths", Rule("srsf"), 4, "A 0+9, G 0+6x3, B 0+4x2, S 5+2", "A 0-9, G 4-5 7-12, B 0-4, S 5-7"),
]

LAS = [
    # 1: A, B in the first queue; A is at its head.  2: A has had 2 and moves; B runs.  4: B has had 2 and moves behind
    # A, which runs on to 5 of service at 7 and moves to the last queue.  7: B does its last second.  8: A does its own.
    case("three queues", las(2, 5), 1, "A 0+6, B 1+3", "A 0-2 4-7 8-9, B 2-4 7-8"),
    # A passes both limits alone: moved, but never stopped.
    case("alone nobody is preempted", las(2, 5), 1, "A 0+10", "A 0-10"),
    # 2: A has had 2 at the very moment at which it ends: it ends.
    case("a job that ends at its limit ends", las(2, 5), 1, "A 0+2, B 1+1", "A 0-2, B 2-3"),
    # 2: B comes and A reaches its limit.  Were A still in the first queue, it would stand before B.
    case("moved at exactly that moment, before the pass", las(2, 5), 1, "A 0+4, B 2+1", "A 0-2 3-5, B 2-3"),
    # 2: B comes; A has a second left in the first queue and stands before it.  3: A moves, B runs.  5: A's last second.
    case("a newcomer joins the tail", las(3, 9), 1, "A 0+4, B 2+2", "A 0-3 5-6, B 3-5"),
    # 0: H and B run; A (2 devices) is skipped, so after the pass the queue is H, B, A.
    # 2: H ends, B stays at the head and keeps its device; A does not fit.  4: B ends, A starts.
    case(
        "after a pass those that run stand before those that wait",
        las(10, 20),
        2,
        "H 0+2, A 0+3x2, B 0+4",
        "H 0-2, A 4-7, B 0-4",
    ),
    # 3 devices, limit of 4 device-seconds.  0: H (2) and B (1) run, A (2) waits: queue H, B, A.
    # 2: H ends (at its limit), A starts: queue B, A.  4: B has had 4 * 1 and A 2 * 2: both move, A first because it
    # came first.  N comes: it takes 1 device, A 2, nothing is left for B.  5: N ends, B goes on with its last 2.
    case(
        "several moves at once are in arrival order",
        las(4, 100, by_devices=True),
        3,
        "H 0+2x2, A 0+4x2, B 0+6, N 4+1",
        "H 0-2, A 2-6, B 0-4 5-7, N 4-5",
    ),
    # 2 devices.  0: G has both.  Service in seconds: G reaches 4 at 4, and B goes ahead of it.
    # 4: B runs, G does not fit beside it.  8: B has had 4 and moves behind G: G goes on and ends at 10; then B.
    case("limits in seconds", las(4, 8), 2, "G 0+6x2, B 1+5", "G 0-4 8-10, B 4-8 10-11"),
    # The same in device-seconds: G reaches 4 at 2.  2: B runs until it has had 4, at 6, and moves behind G.
    # 6: G has had 4 and reaches 8 at 8, moves to the last queue; B does its last second, G its last 2.
    case("limits in device-seconds", las(4, 8, by_devices=True), 2, "G 0+6x2, B 1+5", "G 0-2 6-8 9-11, B 2-6 8-9"),
    # Defaults: 3250 s and 7200 s.  3250: A moves, B runs until 3750, then A its last 750.
    case(
        "default limits",
        Rule("las", limits=(3250 * SECOND, 7200 * SECOND)),
        1,
        "A 0+4000, B 1000+500",
        "A 0-3250 3750-4500, B 3250-3750",
    ),
]

CASES = [*FIFO, *SJF, *SRTF, *SRSF, *LAS]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule.policy}: {case.name}")


def test_cases_are_complete() -> None:
    """A slip of the pen would otherwise be looked for in the scheduler."""
    wrong = [f"{case.rule.policy}: {case.name}: {what}" for case in CASES for what in slips(case)]
    assert not wrong, "\n".join(wrong)


def slips(case: Case) -> Iterator[str]:
    if {one.id for one in case.jobs} != set(case.timeline):
        yield "its timeline has other jobs"
    for one in case.jobs:
        intervals = case.timeline.get(one.id, [])
        if intervals and sum(end - begin for begin, end in intervals) != one.duration_us:
            yield f"the intervals of {one.id} are not as long as its duration"


@every_case
def test_the_reference_gives_the_timeline(case: Case) -> None:
    expected = schedule(case.jobs, case.devices, case.rule)
    assert {one.job.id: one.intervals for one in expected} == case.timeline
    for one in expected:
        assert one.outcome == (Outcome.SUCCEEDED if one.intervals else Outcome.REFUSED)
        assert one.preemptions == max(len(one.intervals) - 1, 0)


@every_case
def test_the_simulator_gives_the_timeline(case: Case) -> None:
    check(case.jobs, case.devices, case.rule)


@pytest.mark.parametrize("case", [FIFO[0], LAS[-1]], ids=["fifo is strict", "las knows its limits"])
def test_what_is_so_unless_told_otherwise(case: Case) -> None:
    plain = Settings(policy=case.rule.policy, allocation=Allocation.DEVICES)
    found, told = (simulate(case.jobs, Options(case.devices, chosen)) for chosen in (plain, case.rule.settings()))
    assert found.jobs == told.jobs


def test_a_device_in_use_counts_as_busy() -> None:
    """BLOCKED_GANG: 10 * 2 + 5 * 4 + 3 * 1 + 1 * 2 = 45 device-seconds."""
    result = simulate(jobs_of(BLOCKED_GANG), Options(devices=4, settings=Rule("fifo").settings()))
    assert result.busy_us == 45 * SECOND
    assert result.recording is None
