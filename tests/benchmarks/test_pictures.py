"""The pictures for the docs: from made-up results, and from made-up events."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.pictures import sweep, terminal, timeline
from benchmarks.pictures.timeline import Moves, read_moves
from carpool.facts.fact import Fact, What
from carpool.protocol.api import EventInfo

SVG = "{http://www.w3.org/2000/svg}"
DESCENDER = 4  # of letters like g, in the units of the picture
POINTS = [
    {"quantum_s": quantum, "fixed": 1 + 0.1 / quantum, "adaptive": min(1.05, 1 + 0.1 / quantum)}
    for quantum in (0.2, 1, 60)
]


def test_the_sweep_has_a_dot_for_each_run(tmp_path: Path) -> None:
    figure = {"detail": {"points": POINTS}}
    file = tmp_path / "result.json"
    file.write_text(json.dumps({"figures": [{"detail": {}}, figure]}))
    picture = ElementTree.fromstring(sweep.draw(file))
    dots = picture.findall("{http://www.w3.org/2000/svg}circle")
    assert len(dots) == 2 * len(POINTS)
    assert all(sweep.TOP <= float(dot.attrib["cy"]) <= sweep.HEIGHT - sweep.BOTTOM for dot in dots)


def test_a_result_without_a_sweep_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text('{"figures": []}')
    with pytest.raises(KeyError, match="quantum"):
        sweep.draw(file)


def test_a_terminal_is_drawn_as_it_looks() -> None:
    drawn = terminal.picture(["ls"], "ID  NAME\n\x1b[32m 1  [red]vae[/red]\x1b[0m\n")
    texts = {
        "".join(text.itertext()).replace("\xa0", " "): text.attrib["class"]
        for text in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    }
    assert {"$ carpool ls", "ID  NAME", " 1  [red]vae[/red]"} <= texts.keys()
    assert texts[" 1  [red]vae[/red]"] != texts["ID  NAME"], "it has a colour"
    assert "url(" not in drawn.replace("url(#", ""), "nothing is loaded from elsewhere"


def test_no_line_of_a_terminal_is_cut() -> None:
    """Viewers do not draw what names a clip path that is not there, and cut letters at the edge of one that is."""
    drawn = ElementTree.fromstring(terminal.picture(["ls"], "ID  NAME\n 1  lying g\n"))
    clips = {f"url(#{clip.attrib['id']})": clip[0].attrib for clip in drawn.iter(f"{SVG}clipPath")}
    for text in drawn.iter(f"{SVG}text"):
        if "clip-path" in text.attrib and (text.text or "").strip():
            clip = clips[text.attrib["clip-path"]]
            below = float(clip["y"]) + float(clip["height"]) - float(text.attrib["y"])
            room = float(clips["url(#carpool-clip-terminal)"]["height"]) - float(text.attrib["y"])
            assert min(below, room) >= DESCENDER


def test_the_colour_of_a_turn_in_the_legend_is_that_of_every_job() -> None:
    turns = [span(job, begin + job * 100, begin + job * 100 + 50) for begin in (0, 1000) for job in (1, 2, 3)]
    drawn = ElementTree.fromstring(timeline.picture(Moves(turns, [span(1, 1150, 1160)], [span(2, 1200, 1210)])))
    shapes = list(drawn)
    words = {shape.text: shapes[n - 1].get("fill") for n, shape in enumerate(shapes) if shape.tag == f"{SVG}text"}
    colours = Counter(shape.attrib["fill"] for shape in drawn.iter(f"{SVG}rect"))
    assert colours[words["its turn"]] == 1 + 1 + 3  # the legend, job 3's first turn, and then one of each job
    assert colours[words["memory moves out"]] == colours[words["memory comes back"]] == 1 + 1


def test_a_command_prints_as_on_a_terminal(tmp_path: Path) -> None:
    assert terminal.on_terminal(tmp_path, ["ls", "--help"]).startswith("Usage: carpool ls [OPTIONS] [JOB]...\n")
    with pytest.raises(subprocess.CalledProcessError):  # there is no daemon
        terminal.on_terminal(tmp_path, ["ls"])


def span(job: int, begin_us: int, end_us: int) -> Fact:
    return Fact(What.TURN, job, begin_us, end_us=end_us)


def event(now_us: int, kind: str, job: int, **data: object) -> EventInfo:
    return EventInfo(now_us, 0, now_us, kind, job, {"job": job, **data})


def test_turns_and_moves_are_read_from_events() -> None:
    moves = read_moves(
        [
            event(10, "GrantTurn", 1, lane=1),
            event(50, "TurnPassed", 1, to=2, cause="early", usage={"in_us": 0}),
            event(51, "Offload", 1),
            event(70, "Offloaded", 1),
            event(90, "TurnReleased", 2, cause="early", usage={"in_us": 0}),
            event(95, "GrantTurn", 1, lane=1),
            event(120, "TurnReleased", 1, cause="early", usage={"in_us": 8}),
        ]
    )
    found = [[(one.job, one.start_us, one.end_us) for one in each] for each in (moves.turns, moves.out, moves.back)]
    assert found == [[(1, 10, 50), (2, 50, 90), (1, 95, 120)], [(1, 51, 70)], [(1, 95, 103)]]
