"""What the core is told of the load: whole percents, on change only."""

from __future__ import annotations

from typing import Any

import pytest

from carpool.core.events import DeviceLoad
from carpool.core.model import Load
from carpool.core.placement.filters.collocation import risk_ppm
from carpool.daemon.journal.events import RING_KINDS
from carpool.daemon.telemetry.load_events import Known, Loads, load_of
from carpool.telemetry.samples import CapabilityLevel, Sample

SECOND = 1_000_000


def sample(second: float, level: CapabilityLevel = CapabilityLevel.GPM, **values: Any) -> Sample:
    return Sample(round(second * SECOND), level, **values)


def gpu(second: float, active: int, occupancy: int | None = None, dram: int | None = None) -> Sample:
    return sample(second, sm_active_ppm=active, sm_occupancy_ppm=occupancy, dram_active_ppm=dram)


class Told(list[DeviceLoad]):
    def __init__(self) -> None:
        super().__init__()
        self.loads = Loads(self.append)


@pytest.fixture
def told() -> Told:
    return Told()


def test_the_risk_of_each_counter_in_whole_percents() -> None:
    actives = [812_345, 123_456, 999_999, 500_000]
    samples = [gpu(number, active, 400_000, 4_999) for number, active in enumerate(actives)]
    known = load_of(samples)
    assert known is not None and known.load is not None and known.why == ""
    assert known.load == Load(610_000, (risk_ppm(actives) + 5_000) // 10_000 * 10_000, 400_000, 0)


def test_a_counter_that_is_missing_is_none_and_utilization_stands_in() -> None:
    known = load_of([gpu(0, 500_000), gpu(1, 500_000, 300_000)])
    assert known == Known(Load(500_000, 500_000, 300_000, None))
    known = load_of([sample(0, CapabilityLevel.BASIC, reason="no GPM here", busy_ppm=370_000)])
    assert known == Known(Load(370_000, 370_000), "utilization stands in for SMACT: no GPM here")


@pytest.mark.parametrize(
    "first",
    [
        sample(0, CapabilityLevel.HOST),
        sample(0, CapabilityLevel.HOST, busy_ppm=900_000),
        sample(0, CapabilityLevel.BASIC),
    ],
)
def test_one_look_says_nothing_yet(first: Sample) -> None:
    """And how busy the machine is does not stand in for what a host device's jobs do."""
    assert load_of([first]) is None


def test_told_on_change_only(told: Told) -> None:
    for second, active in ((0, 500_000), (1, 503_000), (2, 496_000), (3, 560_000)):
        told.loads.measured("cuda0", [gpu(second, active)])
    assert told == [DeviceLoad("cuda0", Load(500_000, 500_000)), DeviceLoad("cuda0", Load(560_000, 560_000))]


def test_at_most_once_a_second_however_often_devices_are_measured(told: Told) -> None:
    for tenth in range(20):
        told.loads.measured("cuda0", [gpu(tenth / 10, tenth * 20_000)])
    assert [event.load and event.load.active_ppm for event in told] == [0, 200_000]


def test_the_journal_keeps_the_newest_only() -> None:
    assert "DeviceLoad" in RING_KINDS


HALF = Load(500_000, 500_000)


@pytest.mark.parametrize(
    ("happens", "heard", "known"),
    [
        ([gpu(0, 500_000), ("lost", "a"), ("lost", "a"), gpu(0.1, 500_000)], [HALF, "a", HALF], HALF),
        ([gpu(0, 500_000), ("lost", "a"), ("lost", "b")], [HALF, "a", "b"], None),
        ([("lost", "a"), sample(0, CapabilityLevel.BASIC)], ["a", ""], None),
        ([("unavailable", "a")], [], None),
        ([("lost", "a"), ("unavailable", "b"), ("unavailable", "b")], ["a", ""], None),
        ([gpu(0, 500_000), ("unavailable", "a")], [HALF, "a"], None),
    ],
    ids=[
        "lost and found again",
        "another reason",
        "it answers but has no load: else nobody would join anybody there again",
        "no telemetry",
        "it hung before it turned out to have no telemetry",
        "telemetry goes away",
    ],
)
def test_losses(told: Told, happens: list[Any], heard: list[Load | str], known: Load | None) -> None:
    for what in happens:
        if isinstance(what, Sample):
            told.loads.measured("cuda0", [what])
        else:
            getattr(told.loads, what[0])("cuda0", what[1])
    assert [event.load or event.why for event in told] == heard
    now = told.loads.known("cuda0")
    assert (now and now.load) == known and told.loads.known("cuda1") is None
