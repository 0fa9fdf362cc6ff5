"""The timeline that the demo draws, read from events written by hand."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.five_policies.report import memory_table, table
from benchmarks.five_policies.results import JobResult, Round, percentile
from carpool.protocol.api import EventInfo
from tools.demo.picture import Band, draw
from tools.demo.timeline import Switch, Timeline, read_timeline

MIB = 1 << 20


class Story:
    """Builds an event stream: ``story.at(3).tell("GrantTurn", lane=1, job=2)``."""

    def __init__(self) -> None:
        self.events: list[EventInfo] = []
        self.now = 0

    def at(self, now_us: int) -> Story:
        self.now = now_us
        return self

    def tell(self, kind: str, **data: Any) -> Story:
        number = len(self.events) + 1
        self.events.append(EventInfo(number, 10**15 + self.now, self.now, kind, data.get("job"), data))
        return self


def usage(residue: int = 0, cost: int = 0) -> dict[str, int]:
    return {"residue": residue, "switch_cost_us": cost}


@pytest.fixture
def story() -> Story:
    """Two jobs in one lane: 1 computes, hands over to 2, 2 gives its turn back and gets it again, both end."""
    story = Story()
    story.at(0).tell("Submitted", job=1, spec={}).tell("Submitted", job=2, spec={})
    story.at(10).tell("OpenLane", lane=1, device="host0", owner=0, size=0).tell("StartJob", job=1, lane=1)
    story.at(20).tell("ProcessStarted", job=1).tell("ProcessStarted", job=2)
    story.at(30).tell("TurnWanted", job=1).tell("GrantTurn", lane=1, job=1)
    story.at(31).tell("GrantMemory", job=1, memory={"persistent": 4 * MIB, "ephemeral": 8 * MIB}, answers=None)
    story.tell("ResizeLane", lane=1, size=8 * MIB)
    story.at(40).tell("TurnWanted", job=2)
    story.at(100).tell("TurnPassed", job=1, to=2, cause="boundary", usage=usage(residue=5, cost=7))
    story.at(150).tell("TurnReleased", job=2, cause="early", usage=usage(residue=9, cost=9))
    story.at(160).tell("GrantTurn", lane=1, job=2)
    story.at(200).tell("EndJob", job=2, outcome="succeeded").tell("Sampled", job=1, usage=usage())
    story.at(210).tell("GrantTurn", lane=1, job=1)
    story.at(300).tell("EndJob", job=1, outcome="succeeded").tell("CloseLane", lane=1)
    return story


def test_turns_follow_grants_hand_overs_and_ends(story: Story) -> None:
    turns = [(turn.job, turn.start_us, turn.end_us) for turn in read_timeline(story.events).turns]
    assert turns == [(1, 30, 100), (2, 100, 150), (2, 160, 200), (1, 210, 300)]


def test_a_turn_that_returns_to_the_same_job_is_no_switch(story: Story) -> None:
    assert read_timeline(story.events).switches == [Switch(100, 1, 5, 7)]


def test_queueing_is_the_wait_for_a_process_and_for_the_first_turn(story: Story) -> None:
    lives = read_timeline(story.events).lives
    assert lives[1].queueing_us == 20
    assert lives[2].queueing_us == 20 + 60


def test_memory_levels_add_persistent_grants_and_lanes(story: Story) -> None:
    timeline = read_timeline(story.events)
    assert timeline.peak_bytes == 12 * MIB
    assert timeline.levels[-1].total == 0


def test_end_of_a_job_that_has_not_ended_is_an_error() -> None:
    timeline = read_timeline(Story().tell("Submitted", job=1, spec={}).events)
    with pytest.raises(KeyError, match="has not ended"):
        timeline.end_of(1)


def test_a_job_refused_before_it_ran_has_a_life_and_no_turn() -> None:
    story = Story().tell("Submitted", job=1, spec={}).at(5).tell("EndJob", job=1, outcome="refused")
    timeline = read_timeline(story.events)
    assert timeline.turns == [] and timeline.end_us == 5 and timeline.lives[1].queueing_us == 0


def test_the_picture_is_well_formed_and_shows_every_turn_and_name(story: Story) -> None:
    band = Band("fair & square", read_timeline(story.events), {1: "gpt", 2: "c<n>n"})
    svg = draw([band], 16 * MIB, 40 * MIB)
    tree = ElementTree.fromstring(svg)
    texts = [node.text for node in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert {"fair & square", "gpt", "c<n>n", "lane 1", "device 16 MiB; the jobs' peaks together 40 MiB"} <= set(texts)
    titles = [node.text or "" for node in tree.iter("{http://www.w3.org/2000/svg}title")]
    assert sum(title.startswith(("gpt: ", "c<n>n: ")) for title in titles) == 4
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")


def test_the_picture_merges_turns_that_no_pixel_separates() -> None:
    story = Story().tell("Submitted", job=1, spec={})
    for start in range(0, 10_000_000, 1000):
        story.at(start).tell("GrantTurn", lane=1, job=1)
        story.at(start + 999).tell("TurnReleased", job=1, cause="early", usage=usage())
    story.at(10_000_000).tell("EndJob", job=1, outcome="succeeded")
    svg = draw([Band("fair", read_timeline(story.events), {1: "gpt"})], MIB, MIB)
    assert svg.count("gpt: ") == 1


def test_the_picture_of_nothing_is_still_a_picture() -> None:
    ElementTree.fromstring(draw([], MIB, 0))
    ElementTree.fromstring(draw([Band("fair", Timeline(), {})], MIB, 0))


def test_tables_show_what_was_measured(story: Story, tmp_path: Any) -> None:
    jobs = (JobResult("gpt", 3.0, 1.0, tmp_path), JobResult("cnn", 1.0, 0.0, tmp_path))
    alone = Round("one by one", jobs, 3.0)
    shared = Round("fair", jobs, 2.0, read_timeline(story.events), {"gpt": (MIB, 2 * MIB), "cnn": (MIB, MIB)})
    lines = table([alone, shared]).splitlines()
    assert lines[2].split()[:9] == ["one", "by", "one", "3.0", "s", "2.0", "s", "2.9", "s"]
    assert lines[3].split()[-8:] == ["1", "0", "ms", "(0.0%)", "0.00", "MiB", "12", "MiB"]
    assert "together         5.0 MiB on a device of 4 MiB" in memory_table([alone, shared], 4 * MIB)


@pytest.mark.parametrize(
    ("values", "share", "expected"), [([4.0], 0.95, 4.0), ([1.0, 3.0], 0.5, 2.0), ([0, 10], 0.95, 9.5)]
)
def test_percentile(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == pytest.approx(expected)
